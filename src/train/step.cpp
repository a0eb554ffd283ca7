#include "train/step.hpp"

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/failpoints.hpp"
#include "train/microbatches.hpp"
#include "train/schedule.hpp"

namespace trireme {

Step::Step(Transformer& model,
           Optimizer& optimizer,
           Communicator& data_group,
           LossScaler& scaler,
           double clip_norm,
           double bucket_mib)
    : model_(model),
      registry_(model.registry()),
      optimizer_(optimizer),
      scaler_(scaler),
      clip_norm_(clip_norm),
      buckets_(registry_, data_group, bucket_mib) {
  registry_.on_ready([this](ParamId id) { buckets_.ready(id); });
}

UpdateResult Step::run(std::span<const Batch> batches,
                       std::int64_t update_targets,
                       std::int64_t step,
                       std::int64_t update,
                       double lr) {
  UpdateResult result;
  std::vector<Microbatch> micro_batches;
  for (const Batch& batch : batches) {
    micro_batches.push_back(to_microbatch(batch, registry_.device(), step, /*training=*/true));
    result.num_targets += batch.num_targets;
  }
  const double grad_scale =
      scaler_.scale() / static_cast<double>(std::max<std::int64_t>(update_targets, 1));
  std::vector<ForwardTape> tapes(batches.size());
  at::Tensor loss_sum =
      at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(registry_.device()));

  buckets_.begin();
  registry_.begin_update(static_cast<int>(batches.size()));
  for (const Operation& operation : single_stage_schedule(static_cast<int>(batches.size()))) {
    const auto i = static_cast<std::size_t>(operation.micro_batch);
    if (operation.kind == Operation::Kind::forward) {
      loss_sum.add_(model_.forward(micro_batches[i], grad_scale, tapes[i]));
    } else {
      // Parameter 0 is complete last, so that the damage of this rank alone travels with its
      // bucket.
      if (failpoint_triggered("train.overflow"))
        registry_.main_grad(0).view({-1})[0] = std::numeric_limits<float>::infinity();
      model_.backward(micro_batches[i], tapes[i]);
    }
  }
  failpoint("train.reduce");
  buckets_.finish();
  result.overlap = buckets_.times();
  result.loss_sum = loss_sum.item<double>();

  // Gradients are summed: a not-finite value on one rank is now on all, so all decide alike.
  result.grad_norm = global_norm(grad_squares(registry_)) / scaler_.scale();
  result.skipped = !std::isfinite(result.grad_norm);
  if (result.skipped && scaler_.scale() <= 1.0) {
    fail(ErrorKind::numeric,
         "step ",
         step,
         ": the gradient is not finite. The last checkpoint is untouched: resume from it with a "
         "lower "
         "optim.lr, more optim.warmup_steps or train.precision bf16 or fp32");
  }
  if (!result.skipped) {
    const double factor = clip_factor(result.grad_norm, clip_norm_) / scaler_.scale();
    if (factor != 1.0) registry_.flat_grad().mul_(factor);
    optimizer_.step(update, lr);
    registry_.refresh_weights();
  }
  scaler_.update(result.skipped);
  return result;
}

}  // namespace trireme
