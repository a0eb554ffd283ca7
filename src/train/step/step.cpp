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

Step::Step(const StepParts& parts, const StepOptions& options)
    : parts_(parts),
      registry_(parts.model.registry()),
      clip_norm_(options.clip_norm),
      buckets_(registry_, parts.data_group, options.bucket_mib),
      comm_s_(parts.measures.declare({"comm_s", Combine::mean})),
      comm_exposed_s_(parts.measures.declare({"comm_exposed_s", Combine::mean})),
      first_bucket_s_(parts.measures.declare({"first_bucket_s", Combine::mean})),
      last_grad_s_(parts.measures.declare({"last_grad_s", Combine::mean})) {
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
      parts_.scaler.scale() / static_cast<double>(std::max<std::int64_t>(update_targets, 1));
  std::vector<ForwardTape> tapes(batches.size());
  std::vector<ObjectiveTape> loss_tapes(batches.size());
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
      const at::Tensor hidden = parts_.model.forward(micro_batches[i], tapes[i]);
      loss_sum.add_(parts_.objective.forward(micro_batches[i], hidden, grad_scale, loss_tapes[i]));
    } else {
      failpoint("train.backward");
      if (operation.micro_batch == last) show_bad_loss(registry_, loss_sum);
      parts_.model.backward(micro_batches[i], tapes[i], parts_.objective.backward(loss_tapes[i]));
    }
  }
  failpoint("train.reduce");
  buckets_.finish();
  result.overlap = buckets_.times();
  parts_.measures.record(comm_s_, result.overlap.comm_s);
  parts_.measures.record(comm_exposed_s_, result.overlap.exposed_s);
  parts_.measures.record(first_bucket_s_, result.overlap.first_launch_s);
  parts_.measures.record(last_grad_s_, result.overlap.last_ready_s);
  result.loss_sum = loss_sum.item<double>();

  // Gradients are summed: a not-finite value on one rank is now on all, so all decide alike.
  result.grad_norm = global_norm(grad_squares(registry_)) / parts_.scaler.scale();
  result.skipped = !std::isfinite(result.grad_norm);
  result.overflow = result.skipped && parts_.scaler.dynamic() && parts_.scaler.scale() > 1.0;
  if (!result.skipped) {
    failpoint("train.optimizer");
    const double factor = clip_factor(result.grad_norm, clip_norm_) / parts_.scaler.scale();
    if (factor != 1.0) registry_.flat_grad().mul_(factor);
    before_update_();
    parts_.optimizer.step(update, lr);
    registry_.refresh_weights();
  }
  parts_.scaler.update(result.skipped);
  return result;
}

}  // namespace trireme
