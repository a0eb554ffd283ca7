#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "train/config/config.hpp"
#include "train/verify/layout_trial.hpp"

namespace trireme::train {

/// Distances between the training on a layout and on one process, in fp64. All are relative: the
/// largest difference over the largest element, for the worst tensor of the worst step.
struct LayoutComparison {
  double loss_rel = 0;
  double grad_rel = 0;
  std::string grad_worst;  // name of the parameter with the largest distance
  double norm_rel = 0;
  double weight_rel = 0;
  double moment_rel = 0;
  /// Number of elements without a comparison of weights and optimizer state, because rounding errors
  /// are a large share of their gradients.
  std::int64_t num_excluded = 0;
  double bound = 1e-10;
  std::string audit;  // TrialTrace::audit

  [[nodiscard]] bool equal() const {
    return loss_rel <= bound && grad_rel <= bound && norm_rel <= bound && weight_rel <= bound &&
           moment_rel <= bound;
  }
};

/// Compares the trial of a layout with the trial of one process.
LayoutComparison compare_trials(const TrialTrace& trace, const TrialTrace& expected);

/// Returns a small model like `model`: the same heads, activation, norms, weight tying and dropout,
/// but two layers or more, and odd sizes that every axis can split.
model::ModelConfig small_model_like(const model::ModelConfig& model,
                                    const parallel::ParallelConfig& parallel);

/// Throws the errors of check_layout, and Error(usage) if the layout trains differently on purpose.
void check_verifiable(const RunConfig& config, int ranks);

/// Trains the small model for `steps` updates on the layout config.parallel, over all ranks of
/// `world`, and on one process, and compares them. `node_of_rank`: see Mesh. Returns the result on
/// rank 0. Throws the errors of check_verifiable. Collective.
LayoutComparison verify_layout(comm::Communicator& world, const RunConfig& config,
                               std::int64_t steps, at::Device device,
                               const std::vector<int>& node_of_rank = {});

}  // namespace trireme::train
