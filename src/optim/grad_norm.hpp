#pragma once
#include <ATen/core/Tensor.h>

#include "parallel/param_registry.hpp"

namespace trireme {

/// What all ranks know of an update before they change their weights.
struct GradSummary {
  double norm = 0;      // of the gradients of all parameters, each counted once
  double own_norm = 0;  // of those that this rank updates by: the clip's
  bool finite = true;   // all gradients and losses of all ranks
  double loss_sum = 0;  // of this rank
};

/// Collective over `world`, all ranks of the mesh: one all-reduce of some 70 whole numbers; a GPU is
/// waited for once. `loss_sum`: this rank's, a scalar of fp64 on the device.
///
/// Squares are added in fp64 in fixed blocks of 64 elements, and the blocks exactly (ExactSum): the
/// norm of the same gradients has the same bits for every number of data ranks and every ZeRO
/// stage.
GradSummary summarize_grads(const ParamRegistry& registry, Communicator& world,
                            const at::Tensor& loss_sum);

/// The same where data ranks train on their own (Mesh::trains_alone): own_norm is of the gradient
/// that this data rank has over its ranks of tp, norm the root of the mean square of all data
/// ranks' own norms. Collective over all ranks of the mesh, as above.
GradSummary summarize_own_grads(const ParamRegistry& registry, const Mesh& mesh,
                                const at::Tensor& loss_sum);

/// Factor on all gradients: min(1, clip_norm / (norm + 1e-6)); 1 when clip_norm is 0.
double clip_factor(double norm, double clip_norm);

}  // namespace trireme
