#pragma once
#include <string>
#include <vector>

#include "pipeline/pass.hpp"

namespace trireme::pipeline {

/// The assignment of stages to ranks of the pp axis.
struct Placement {
  int ranks = 1;
  std::vector<int> rank_of_stage = {0};

  bool operator==(const Placement&) const = default;

  [[nodiscard]] int stages() const { return static_cast<int>(rank_of_stage.size()); }

  /// Returns the rank's stages in ascending order.
  [[nodiscard]] std::vector<int> stages_of(int rank) const;

  /// Returns the index of a stage among the stages of its rank.
  [[nodiscard]] std::size_t place_on_rank(int stage) const;
};

/// Places stage s on rank s mod `ranks`, `virtual_stages` stages on each rank.
Placement looped_placement(int ranks, int virtual_stages);

/// Places two stages on each rank, down the ranks and up again: rank 0 has the first and the last
/// stage.
Placement v_placement(int ranks);

/// The order of all actions of one update, as a list for each rank. Transfers follow from the
/// lists: the result of an action leaves for the next stage's rank when the action ends.
struct Schedule {
  Placement placement;
  int micro_batches = 0;
  std::vector<std::vector<Pass>> lists = {};  // by rank

  /// True if weight gradients are actions of their own.
  [[nodiscard]] bool splits_backward() const;
};

/// Checks that the lists contain each stage's actions for all micro-batches, once each, on the rank
/// of the stage. Returns the first mistake, or "" if there is none. Use simulate() to check the
/// order.
std::string mistake_in(const Schedule& schedule);

}  // namespace trireme::pipeline
