#pragma once
#include "pipeline/schedule.hpp"
#include "pipeline/simulate.hpp"

namespace trireme::pipeline {

struct GreedyRules {
  /// Of one rank: micro-batches of its stages under way at most; 0: no limit. A stage's passes
  /// always have room to end: a first stage's forward pass takes room for all stages of its rank.
  int most_under_way = 0;
  bool split_backward = true;
  bool forward_first = false;  // where a forward and a backward pass could begin
};

/// The schedule in which each rank always begins what it can: backward before forward, later stages
/// before earlier ones, gradients of weights when nothing else waits or room is short. Under way at
/// most as the rules say, or as few as all stages of one micro-batch need.
Schedule greedy_schedule(const Placement& placement, int micro_batches, const Timing& timing,
                         const GreedyRules& rules);

}  // namespace trireme::pipeline
