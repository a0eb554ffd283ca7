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

/// Returns why the named schedule does not support this number of stages per rank ("must be 2 with
/// ..."), or "" if it does. V-shaped schedules always have two and also accept 1.
std::string mistake_in_stages(std::string_view name, int virtual_stages);

/// Returns the stages per rank of the named schedule if `virtual_stages` are requested.
int stages_per_rank(std::string_view name, int virtual_stages);

/// Builds the schedule `name` (one of kSchedules). The shape must be valid by mistake_in_stages().
/// Sources:
/// - gpipe: Huang et al., 2019 (1811.06965)
/// - 1f1b: Narayanan et al., 2019 (PipeDream), with the flush of Megatron-LM
/// - interleaved: Narayanan et al., 2021 (2104.04473), in groups of p micro-batches or more
/// - zb-h1, zb-v: Qi et al., 2023 (2401.10241); zb-v is greedy
/// - dualpipe-v: DeepSeek-AI, DualPipeV, 2025; greedy below 2 p micro-batches
Schedule named_schedule(std::string_view name, const Shape& shape);

/// The theoretical bubble and peak if forward, input gradient and weight gradient take equal times.
/// If not `exact`, `bubble` is a lower bound and `peak` an upper bound.
struct Formula {
  double bubble = 0;
  int peak = 0;
  bool exact = true;
};

Formula formula_of(std::string_view name, const Shape& shape);

}  // namespace trireme::pipeline
