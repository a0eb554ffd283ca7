#pragma once
#include "pipeline/schedule.hpp"
#include "pipeline/simulate.hpp"

namespace trireme::pipeline {

struct GreedyRules {
  /// The maximum number of micro-batches in flight per rank, over all its stages; 0 means no limit.
  /// A forward action of a rank's first stage reserves a slot for all stages of the rank, so that
  /// every started micro-batch can finish.
  int max_in_flight = 0;
  bool split_backward = true;
  bool forward_first = false;  // tie-break if a forward and a backward action could start
};

/// Builds a schedule in which each rank always starts the first action that can run. It prefers
/// backward to forward and later stages to earlier stages. Weight gradients run if nothing else can
/// run or the in-flight limit is reached. The limit is raised to what one micro-batch needs on all
/// stages of a rank.
Schedule greedy_schedule(const Placement& placement, int micro_batches, const Timing& timing,
                         const GreedyRules& rules);

}  // namespace trireme::pipeline
