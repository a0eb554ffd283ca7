#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "train/config/config.hpp"
#include "train/verify/layout_trial.hpp"

namespace trireme {

/// How far a layout's training lies from that of one process, in fp64. All distances are relative:
/// of tensors the largest difference over the largest element, the worst tensor of the worst step.
struct LayoutVerdict {
  double loss_rel = 0;
  double grad_rel = 0;
  std::string grad_worst;  // the parameter's name
  double norm_rel = 0;
  double weight_rel = 0;
  double moment_rel = 0;
  double bound = 1e-10;
  std::string audit;  // TrialTrace::audit

  [[nodiscard]] bool equal() const {
    return loss_rel <= bound && grad_rel <= bound && norm_rel <= bound && weight_rel <= bound &&
           moment_rel <= bound;
  }
};

/// Of the same updates, on a layout and on one process.
LayoutVerdict compare_trials(const TrialTrace& trace, const TrialTrace& expected);

/// A small model of the same shape as `model`: its heads, activation, norms, ties and dropout; two
/// layers, odd sizes that every axis can be cut by.
ModelConfig small_model_like(const ModelConfig& model, const ParallelConfig& parallel);

/// Throws Error(usage) as check_layout, or where the layout trains otherwise by intent.
void check_verifiable(const RunConfig& config, int ranks);

/// Trains that model for `steps` updates on the layout config.parallel, over all ranks of `world`,
/// and on one process, and compares. `node_of_rank`: Mesh's. Collective; the verdict is
/// rank 0's. Throws Error(usage) as check_layout, and with local steps.
LayoutVerdict verify_layout(Communicator& world, const RunConfig& config, std::int64_t steps,
                            at::Device device, const std::vector<int>& node_of_rank = {});

}  // namespace trireme
