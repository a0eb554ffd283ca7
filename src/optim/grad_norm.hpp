#pragma once
#include <ATen/core/Tensor.h>

#include "device/host_copy.hpp"
#include "parallel/param_registry.hpp"

namespace trireme::optim {

/// Values about an update that all ranks know before they change their weights.
struct GradSummary {
  double norm = 0;      // norm over all parameters, each counted once
  double own_norm = 0;  // norm of the gradients that this rank updates with; clips
  bool finite = true;   // true if all gradients and losses of all ranks are finite
  double loss_sum = 0;  // loss sum of this rank
};

/// The sums of an update while they are copied to host memory.
struct GradSums {
  at::Tensor words;      // [ExactSum::kWords + 1] int64, over all ranks, on the device
  device::HostCopy all;  // the words and this rank's loss sum
};

/// Starts to compute the gradient norm; see summarize_grads(). Does not wait for a GPU.
GradSums sum_grads(const parallel::ParamRegistry& registry, comm::Communicator& world,
                   const at::Tensor& loss_sum);

/// Waits for the sums, but not for work of the device that came after sum_grads().
GradSummary summary_of(const GradSums& sums);

/// Computes the gradient norm. Collective over `world`, all ranks of the mesh: one all-reduce of
/// about 70 integers and one synchronization with the GPU. `loss_sum` is this rank's loss sum, an
/// fp64 scalar on the device.
///
/// Squares are added in fp64 in fixed blocks of 64 elements, and the blocks are added exactly
/// (ExactSum): equal gradients give an equal norm for any number of data ranks and ZeRO stage.
GradSummary summarize_grads(const parallel::ParamRegistry& registry, comm::Communicator& world,
                            const at::Tensor& loss_sum);

/// Computes the norms if data ranks train independently (Mesh::has_local_steps). own_norm is the
/// norm of this data rank's gradient over its ranks of tp. norm is the root mean square of all own
/// norms. Collective over all ranks of the mesh.
GradSummary summarize_own_grads(const parallel::ParamRegistry& registry, const parallel::Mesh& mesh,
                                const at::Tensor& loss_sum);

/// Returns the factor on all gradients: min(1, clip_norm / (norm + 1e-6)), or 1 if clip_norm is 0.
double clip_factor(double norm, double clip_norm);

/// Returns clip_factor() / loss_scale for the sums of scaled gradients, an fp32 scalar on the GPU;
/// NaN if a gradient or a loss is not finite. Does not wait. Requires the CUDA kernels
/// (Optimizer::has_one_pass).
at::Tensor device_clip_factor(const GradSums& sums, double clip_norm, double loss_scale);

}  // namespace trireme::optim
