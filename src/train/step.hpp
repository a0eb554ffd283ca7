#pragma once
#include <span>

#include "data/batch.hpp"
#include "model/transformer.hpp"
#include "optim/clip.hpp"
#include "optim/loss_scaler.hpp"
#include "optim/optimizer.hpp"
#include "parallel/grad_buckets.hpp"

namespace trireme {

/// What one update left, on this rank unless said otherwise.
struct UpdateResult {
  double loss_sum = 0;           // of this rank's valid targets
  std::int64_t num_targets = 0;  // of this rank
  double grad_norm = 0;          // global, before the clip
  bool skipped = false;          // fp16 overflow somewhere: no rank changed its weights
  OverlapTimes overlap;
};

/// One optimizer step: forward and backward of this rank's micro-batches, gradients summed over the
/// data axis while backward runs, global norm, clip, update.
class Step {
 public:
  Step(Transformer& model,
       Optimizer& optimizer,
       Communicator& data_group,
       LossScaler& scaler,
       double clip_norm,
       double bucket_mib);

  /// `batches`: this rank's share of the update, possibly none. `update_targets`: valid targets of
  /// the whole update, over all ranks and micro-steps; all gradients are those of loss sum /
  /// update_targets. `step` seeds dropout, `update` counts updates that were not skipped (from 1),
  /// both the same on all ranks. Throws Error(numeric) when gradients are not finite and the loss
  /// scale cannot absorb it; weights are then unchanged.
  UpdateResult run(std::span<const Batch> batches,
                   std::int64_t update_targets,
                   std::int64_t step,
                   std::int64_t update,
                   double lr);

 private:
  Transformer& model_;
  ParamRegistry& registry_;
  Optimizer& optimizer_;
  LossScaler& scaler_;
  double clip_norm_;
  GradBuckets buckets_;
};

}  // namespace trireme
