#pragma once
#include <functional>
#include <string>
#include <vector>

#include "data/batch.hpp"
#include "parallel/units/gathered.hpp"
#include "train/verify/trial_model.hpp"

namespace trireme {

/// A few updates of a small model, cut in some way.
struct TrialPlan : TrialShape {
  std::int64_t steps = 4;
  double lr = 1e-2;
  bool audit = false;  // of the last step; every rank has the same number of equal micro-batches
  /// After the initial values are set; before the first step.
  std::function<void(ParamRegistry&)> prepare = [](ParamRegistry&) {};
  /// The micro-batches of one data rank in update `step` (from 0).
  std::function<std::vector<Batch>(int rank, std::int64_t step)> batches;
  /// Valid targets of all ranks in update `step`.
  std::function<std::int64_t(std::int64_t step)> targets;
};

/// What came of it: the same on every rank. Whole tensors are all parameters in id order, fp64.
struct TrialTrace {
  std::vector<GatheredParam> params;
  std::vector<double> losses;  // mean over the update's targets
  std::vector<double> norms;
  std::vector<at::Tensor> grads;  // after each step
  at::Tensor first_weights;
  at::Tensor weights;
  std::vector<at::Tensor> moments;  // one an optimizer slot
  std::string audit;  // what ranks sent or held in the last step and formulas do not say; "": none
};

/// Trains with the real Step. Collective over all of `world`.
TrialTrace run_trial(Communicator& world, const TrialPlan& plan);

}  // namespace trireme
