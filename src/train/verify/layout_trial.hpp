#pragma once
#include <functional>
#include <string>
#include <vector>

#include "data/batch.hpp"
#include "parallel/units/gathered.hpp"
#include "train/verify/trial_model.hpp"

namespace trireme::train {

/// A few updates of a small model on some layout.
struct TrialPlan : TrialShape {
  std::int64_t steps = 4;
  double lr = 1e-2;
  bool audit = false;  // audit the last step; all ranks then need equally many equal micro-batches
  /// Called after the weights are initialized and before the first step.
  std::function<void(parallel::ParamRegistry&)> prepare = [](parallel::ParamRegistry&) {};
  /// Returns the micro-batches of one data rank in update `step` (from 0).
  std::function<std::vector<data::Batch>(int rank, std::int64_t step)> batches;
  /// Returns the number of valid targets of all ranks in update `step`.
  std::function<std::int64_t(std::int64_t step)> targets;
};

/// The results of a trial, equal on all ranks. Tensors hold all parameters in id order, in fp64.
struct TrialTrace {
  std::vector<parallel::GatheredParam> params;
  std::vector<double> losses;  // mean over the update's targets
  std::vector<double> norms;
  std::vector<std::vector<double>> layer_norms;  // LayerNorms of each step, in declared order
  std::vector<at::Tensor> grads;                 // gradients of each step
  at::Tensor first_weights;
  at::Tensor weights;
  std::vector<at::Tensor> moments;  // one tensor per slot of the optimizer state
  std::string audit;  // differences between counts and formulas in the last step; "": none
};

/// Runs the updates with the real Step. Collective over `world`.
TrialTrace run_trial(comm::Communicator& world, const TrialPlan& plan);

}  // namespace trireme::train
