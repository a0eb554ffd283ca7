#pragma once
#include <array>
#include <string>
#include <string_view>

#include "pipeline/schedule.hpp"

namespace trireme::pipeline {

inline constexpr std::array<std::string_view, 6> kSchedules{"gpipe", "1f1b", "interleaved",
                                                            "zb-h1", "zb-v", "dualpipe-v"};

struct Shape {
  int ranks = 1;
  int virtual_stages = 1;
  int micro_batches = 1;
};

/// Why a schedule of this name cannot have so many stages a rank, "must be 2 with ..."; "" if it can.
/// Those of a V have two, said or not.
std::string mistake_in_stages(std::string_view name, int virtual_stages);

/// How many a rank has when `virtual_stages` are asked for.
int stages_a_rank(std::string_view name, int virtual_stages);

/// The schedule of this name, one of kSchedules, of a shape without such a mistake. Sources: gpipe: Huang et al., 2019 (1811.06965);
/// 1f1b: Narayanan et al., 2019 (PipeDream) as Megatron-LM flushes it; interleaved: Narayanan et
/// al., 2021 (2104.04473), in groups of p micro-batches or some more where p does not divide them; zb-h1, zb-v: Qi et al.,
/// 2023 (2401.10241), the second greedy; dualpipe-v: DeepSeek-AI, DualPipeV, 2025, greedy below 2 p
/// micro-batches.
Schedule named_schedule(std::string_view name, const Shape& shape);

/// What theory says where forward pass, input gradient and weight gradient take equal times and
/// transfers none: exactly that, or where `exact` is false, a bubble of at least `bubble` and a peak
/// of at most `peak`.
struct Formula {
  double bubble = 0;
  int peak = 0;
  bool exact = true;
};

Formula formula_of(std::string_view name, const Shape& shape);

}  // namespace trireme::pipeline
