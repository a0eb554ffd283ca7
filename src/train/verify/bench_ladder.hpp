#pragma once
#include <string>
#include <vector>

#include "train/verify/bench_step.hpp"

namespace trireme::train {

/// One rung of the ladder: a step with one fast path off. The values are the same on all ranks.
struct LadderRung {
  std::string off;             // "none", an operation of ops::kOperations, or a key
  double step_time_s = 0;      // median over the rounds, of the slowest rank
  double loss = 0;             // mean loss of the last round
  double loss_delta = 0;       // largest difference of the loss to rung "none" in one round
  double grad_norm_delta = 0;  // largest relative difference of the gradient norm
};

/// Measures the step time with all fast paths, then with each of them off. All rungs of a round
/// train on the same batches and the same weights, because the learning rate is 0. Rounds alternate
/// between the rungs, and each round begins with another rung, so that noise and heat reach all
/// rungs in the same way. Runs one round to warm up and `bench.steps` measured rounds.
///
/// The key train.deterministic is a rung on a GPU only. Deterministic kernels are slower, but they
/// are the default of training. A key of [parallel] is a rung only if it overlaps communication in
/// this layout. Each of these rungs holds a model of its own. Collective, with the arguments of
/// measure_step.
std::vector<LadderRung> measure_ladder(comm::Communicator& control, comm::Communicator& world,
                                       const StepBench& bench);

}  // namespace trireme::train
