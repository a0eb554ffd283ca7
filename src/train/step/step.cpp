#include "train/step/step.hpp"

#include <cmath>
#include <limits>

#include "core/process/failpoints.hpp"
#include "train/step/microbatches.hpp"
#include "train/step/schedule.hpp"

namespace trireme {
namespace {

/// A loss that is not finite can come with finite gradients (a target of probability 0). So the
/// loss less itself, 0 or NaN, is added to a gradient, and all ranks see it in the norm; the device
/// is not waited for. Parameter 0 is complete last: what is added before the last backward pass
/// travels with its bucket.
void show_bad_loss(ParamRegistry& registry, at::Tensor& loss_sum) {
  at::Tensor first = registry.main_grad(0).view({-1}).narrow(0, 0, 1);
  if (failpoint_triggered("train.bad_loss"))
    loss_sum.fill_(std::numeric_limits<double>::infinity());
  if (failpoint_triggered("train.overflow")) first.fill_(std::numeric_limits<float>::infinity());
  first.add_((loss_sum - loss_sum).to(first.scalar_type()));
}

}  // namespace

Step::Step(Transformer& model, Optimizer& optimizer, Communicator& data_group, LossScaler& scaler,
           double clip_norm, double bucket_mib)
    : model_(model),
      registry_(model.registry()),
      optimizer_(optimizer),
      scaler_(scaler),
      clip_norm_(clip_norm),
      buckets_(registry_, data_group, bucket_mib) {
  registry_.on_ready([this](ParamId id) { buckets_.ready(id); });
}

UpdateResult Step::run(std::span<const Batch> batches, std::int64_t update_targets,
                       std::int64_t step, std::int64_t update, double lr) {
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
  const int last = static_cast<int>(batches.size()) - 1;
  for (const StepOperation& operation : single_stage_schedule(static_cast<int>(batches.size()))) {
    const auto i = static_cast<std::size_t>(operation.micro_batch);
    if (operation.kind == StepOperation::Kind::forward) {
      // Gradients leave in the last backward pass: up to there no rank waits for another's.
      if (stop_before_(operation.micro_batch, static_cast<std::int64_t>(batches.size()))) {
        result.dropped = true;
        return result;
      }
      failpoint("train.forward");
      loss_sum.add_(model_.forward(micro_batches[i], grad_scale, tapes[i]));
    } else {
      failpoint("train.backward");
      if (operation.micro_batch == last) show_bad_loss(registry_, loss_sum);
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
  result.overflow = result.skipped && scaler_.dynamic() && scaler_.scale() > 1.0;
  if (!result.skipped) {
    failpoint("train.optimizer");
    const double factor = clip_factor(result.grad_norm, clip_norm_) / scaler_.scale();
    if (factor != 1.0) registry_.flat_grad().mul_(factor);
    before_update_();
    optimizer_.step(update, lr);
    registry_.refresh_weights();
  }
  scaler_.update(result.skipped);
  return result;
}

}  // namespace trireme
