#pragma once
#include <string>
#include <vector>

#include "pipeline/pass.hpp"

namespace trireme::pipeline {

/// Which rank of pp holds which stage.
struct Placement {
  int ranks = 1;
  std::vector<int> rank_of_stage = {0};

  bool operator==(const Placement&) const = default;

  [[nodiscard]] int stages() const { return static_cast<int>(rank_of_stage.size()); }

  /// Rising.
  [[nodiscard]] std::vector<int> stages_of(int rank) const;

  /// Of a stage among those of its rank.
  [[nodiscard]] std::size_t place_on_rank(int stage) const;
};

/// Stage s on rank s mod ranks, `virtual_stages` of them on each.
Placement looped_placement(int ranks, int virtual_stages);

/// Two stages a rank, down the ranks and up again: the first and the last one on rank 0.
Placement v_placement(int ranks);

/// The order of all passes of one update: a list for each rank, run from its beginning. Transfers
/// follow from it: what a pass makes for a stage of another rank leaves when it ends.
struct Schedule {
  Placement placement;
  int micro_batches = 0;
  std::vector<std::vector<Pass>> lists = {};  // by rank

  /// Whether gradients of weights are made in passes of their own.
  [[nodiscard]] bool splits_backward() const;
};

/// What is wrong with lists that are not each stage's passes of all micro-batches, once each, on the
/// stage's rank; "" where nothing is. Their order is simulate()'s to judge.
std::string mistake_in(const Schedule& schedule);

}  // namespace trireme::pipeline
