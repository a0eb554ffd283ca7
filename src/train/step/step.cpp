#include "train/step/step.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/named_range.hpp"
#include "core/operation_record.hpp"
#include "core/process/failpoints.hpp"
#include "model/stages/stage_forward.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/step/microbatches.hpp"

namespace trireme::train {
namespace {

/// Makes the loss or a gradient not finite if a failpoint asks for it.
void trigger_failpoints(parallel::ParamRegistry& registry, at::Tensor& loss_sum) {
  if (failpoint_triggered("train.bad_loss"))
    loss_sum.fill_(std::numeric_limits<double>::infinity());
  if (failpoint_triggered("train.overflow")) {
    parallel::ParamId first = 0;
    while (!registry.trained({first})) ++first;
    registry.master_grad(first).view({-1})[0].fill_(std::numeric_limits<float>::infinity());
  }
}

void scale_grads(const parallel::ParamRegistry& registry, double factor) {
  if (factor == 1.0) return;
  for (const std::size_t unit : registry.layout().trainable_units())
    registry.grad_part(unit).mul_(factor);
}

}  // namespace

StageSums::StageSums(model::Transformer& model, const parallel::Mesh& mesh, Measures& measures)
    : model_(model), mesh_(mesh), measures_(measures) {
  comm::Communicator& pp = mesh.group(parallel::Axis::pp);
  if (pp.size() == 1) return;
  if (model.registry().device().is_cpu())
    bubble_share_ = measures.declare({"bubble_share", Combine::mean});
  if (!model.config().tie_embeddings) return;
  const auto table = model.replicated_embedding();
  const bool trained = table && !model.registry().layout().units()[*table].frozen;
  table_group_ = pp.split(trained ? 0 : -1, pp.rank(), "tied");
}

std::optional<double> StageSums::add(at::Tensor& loss_sum, const Timer& passes, double busy_s,
                                     bool has_passes) {
  comm::Communicator& pp = mesh_.group(parallel::Axis::pp);
  if (pp.size() == 1) return std::nullopt;
  const at::Tensor sums = at::stack({loss_sum, at::full_like(loss_sum, busy_s)});
  parallel::all_reduce(pp, sums, comm::ReduceOp::sum, "loss")->wait();
  loss_sum = sums[0];
  std::optional<double> bubble_share;
  if (bubble_share_ && has_passes) {  // the sum above has synchronized all ranks
    bubble_share = passes.seconds() * pp.size() / sums[1].item<double>() - 1;
    measures_.record(*bubble_share_, *bubble_share);
  }
  if (table_group_) {
    const at::Tensor grads = model_.registry().grad_part(*model_.replicated_embedding());
    parallel::all_reduce(*table_group_, grads, comm::ReduceOp::sum, "grads of tied table")->wait();
  }
  return bubble_share;
}

optim::GradSummary ReplicaSync::summarize(const at::Tensor& loss_sum) const {
  return mesh_.has_local_steps() ? optim::summarize_own_grads(registry_, mesh_, loss_sum)
                                 : optim::summarize_grads(registry_, mesh_.world(), loss_sum);
}

void ReplicaSync::average() {
  const at::NoGradGuard no_grad;
  comm::Communicator& dp = mesh_.group(parallel::Axis::dp);
  std::vector<at::Tensor> values;
  for (const std::size_t unit : registry_.layout().trainable_units())
    values.push_back(registry_.master_part(unit));
  for (const optim::OptimizerSlot& slot : optimizer_.slots()) values.push_back(slot.flat);
  std::vector<comm::WorkPtr> works;
  for (at::Tensor& one : values) {
    if (one.device() == registry_.device()) {
      works.push_back(parallel::all_reduce(dp, one, comm::ReduceOp::sum, "average"));
      continue;
    }
    at::Tensor on_device = one.to(registry_.device());  // offloaded values: one by one
    parallel::all_reduce(dp, on_device, comm::ReduceOp::sum, "average")->wait();
    one.copy_(on_device);
  }
  for (const comm::WorkPtr& work : works) work->wait();
  for (at::Tensor& one : values) one.div_(dp.size());
  registry_.refresh_trainable();
  differ_ = false;
}

Step::Step(const StepParts& parts, double clip_norm)
    : parts_(parts),
      registry_(parts.model.registry()),
      clip_norm_(clip_norm),
      reduction_(parallel::make_grad_reduction(registry_, parts.mesh)),
      sign_step_(registry_),
      may_apply_ahead_(!registry_.device().is_cpu() && !parts.mesh.has_local_steps()),
      schedules_(parts.mesh, parts.model),
      links_(parts.mesh.group(parallel::Axis::pp), parallel::stage_placement(parts.mesh.config())),
      captured_(make_captured_passes(parts.graphs, parts.model, parts.objective, parts.mesh)),
      passes_(parts.model, parts.objective, links_, parts.mesh.rank(parallel::Axis::pp),
              captured_.get()),
      first_bucket_s_(parts.measures.declare({"first_bucket_s", Combine::mean})),
      last_grad_s_(parts.measures.declare({"last_grad_s", Combine::mean})),
      stage_sums_(parts.model, parts.mesh, parts.measures),
      router_(parts.model, parts.mesh, parts.measures),
      layer_norms_(registry_, parts.mesh, parts.model.config().num_layers, parts.measures,
                   parts.layer_norms_every, parts.layer_histograms),
      replicas_(registry_, parts.optimizer, parts.mesh) {
  registry_.on_ready([this](parallel::ParamId id) { reduction_->ready(id); });
}

UpdateResult Step::run(std::span<const data::Batch> batches, std::int64_t update_terms,
                       std::int64_t step, std::int64_t update, double lr) {
  if (start(
          batches, update_terms, step, [update] { return update; }, lr))
    return finish();
  UpdateResult result;
  result.cancelled = true;
  return result;
}

bool Step::start(std::span<const data::Batch> batches, std::int64_t update_terms, std::int64_t step,
                 const std::function<std::int64_t()>& update, double lr) {
  UpdateResult result;
  for (const data::Batch& batch : batches) {
    result.num_targets += batch.num_targets;
    result.num_terms += num_terms(batch, parts_.objective.term());
  }
  const double scale = replicas_.grad_factor() * parts_.scaler.scale();
  const double grad_scale = scale / static_cast<double>(std::max<std::int64_t>(update_terms, 1));
  const std::vector<parallel::Microbatch> micro_batches = make_microbatches(
      batches, registry_.device(), step, parts_.model.config().moe, scale, parts_.mesh);
  at::Tensor loss_sum =
      at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(registry_.device()));
  ActivationCount activations(registry_.weights(), counts_activations_);
  if (parts_.objective.surveys()) parts_.objective.survey(micro_batches, /*last=*/true);

  // Forward and backward. Gradient buckets are sent while backward runs.
  router_.begin();
  reduction_->begin();
  registry_.begin_update(static_cast<int>(batches.size()));
  const pipeline::Schedule& schedule = schedules_.choose(static_cast<int>(batches.size()));
  if (schedule.placement.ranks > 1) parts_.objective.prepare(micro_batches);
  const Timer timer;
  if (!passes_.run(schedule, micro_batches, grad_scale, pass_hooks(loss_sum), activations,
                   loss_sum))
    return false;
  failpoint("train.reduce");
  const double busy_s = timer.seconds() - links_.waited_s();
  {
    const NamedRange range(Phase::communication, "reduce gradients");
    const OperationMark mark(StepWork::comm);
    reduction_->finish();
  }
  const std::int64_t number = update();
  TRIREME_ASSERT(!started_);
  const auto bubble = stage_sums_.add(loss_sum, timer, busy_s, !batches.empty());
  result.passes = {activations.peak_bytes(), passes_.max_in_flight(), bubble};
  result.overlap = reduction_->times();
  parts_.measures.record(first_bucket_s_, result.overlap.first_launch_s);
  parts_.measures.record(last_grad_s_, result.overlap.last_ready_s);
  device::HostCopy routing = router_.summarize(scale);

  layer_norms_.begin(step);
  layer_norms_.before_update(parts_.scaler.scale());
  const OperationMark mark(StepWork::optimizer);
  // All ranks have the same norm, so a non-finite update changes nothing on any rank.
  auto summary = summarize_and_apply(loss_sum, number, lr);
  layer_norms_.after_update();
  schedules_.after_update(micro_batches);
  if (replicas_.due(step)) average_replicas();
  started_ = StartedUpdate{result, std::move(summary), std::move(routing)};
  return true;
}

UpdateResult Step::finish() {
  TRIREME_ASSERT(started_);
  const StartedUpdate update = *std::exchange(started_, std::nullopt);
  const optim::GradSummary summary = update.summary();
  router_.record(update.routing);
  UpdateResult result = update.result;
  result.loss_sum = summary.loss_sum;
  result.grad_norm = summary.norm / parts_.scaler.scale();
  result.skipped = !summary.finite;
  result.overflow = result.skipped && parts_.scaler.dynamic() && parts_.scaler.scale() > 1.0;
  parts_.scaler.update(result.skipped);
  parts_.model.fp8().end_update(parts_.mesh.world(), !result.skipped);
  if (!result.skipped && parts_.average != nullptr) parts_.average->update();
  return result;
}

std::string Step::reason_to_finish() const {
  if (parts_.scaler.dynamic()) return "the fp16 loss scale of a step depends on the step before";
  if (parts_.model.fp8().mode() == model::Fp8Mode::delayed)
    return "the scales of train.fp8 = delayed depend on the step before";
  if (!parts_.objective.keeps_values_on_device())
    return "the loss of this task reads values in every micro-batch";
  return "";
}

ActionHooks Step::pass_hooks(at::Tensor& loss_sum) {
  ActionHooks hooks;
  // Gradients are sent in the last backward pass. Before it, no rank waits for another one.
  hooks.cancel_before = cancel_before_;
  hooks.before_forward = [] { failpoint("train.forward"); };
  hooks.before_backward = [this, &loss_sum](bool last) {
    failpoint("train.backward");
    if (last) trigger_failpoints(registry_, loss_sum);
  };
  if (schedules_.times_actions()) {
    hooks.action_took = [this](const pipeline::StageAction& pass, double seconds) {
      schedules_.action_took(pass, seconds);
    };
  }
  return hooks;
}

std::function<optim::GradSummary()> Step::summarize_and_apply(const at::Tensor& loss_sum,
                                                              std::int64_t update, double lr) {
  if (starts_ahead()) {
    const optim::GradSums sums = [&] {
      const NamedRange range(Phase::optimizer, "gradient norm");
      return optim::sum_grads(registry_, parts_.mesh.world(), loss_sum);
    }();
    apply_ahead(sums, update, lr);
    return [sums] { return optim::summary_of(sums); };
  }
  const optim::GradSummary summary = [&] {
    const NamedRange range(Phase::optimizer, "gradient norm");
    return replicas_.summarize(loss_sum);
  }();
  if (summary.finite) {
    apply(summary, update, lr);
  } else if (may_apply_ahead_) {
    registry_.refresh_trainable();  // collective: other ranks may have the kernels
  }
  return [summary] { return summary; };
}

/// Clips the gradients and changes weights and optimizer state on the GPU, before the host knows
/// the norm. If the update is skipped, the kernels change nothing.
void Step::apply_ahead(const optim::GradSums& sums, std::int64_t update, double lr) {
  failpoint("train.optimizer");
  const NamedRange range(Phase::optimizer, "optimizer");
  before_update_();
  update_in_one_pass(update, lr,
                     optim::device_clip_factor(sums, clip_norm_, parts_.scaler.scale()));
}

bool Step::updates_in_one_pass() const {
  // The sign step of router biases writes no weights that the model computes with. All ranks take
  // the same kernel, also those that do not update a bias.
  return parts_.optimizer.has_one_pass() && !parts_.model.config().moe.has_bias();
}

void Step::update_in_one_pass(std::int64_t update, double lr, const at::Tensor& factor) {
  registry_.weights().settle();
  parts_.optimizer.step_in_one_pass(update, lr, factor);
  registry_.weights().publish(/*frozen_too=*/false);
}

/// Clips the gradients and changes weights and optimizer state.
void Step::apply(const optim::GradSummary& summary, std::int64_t update, double lr) {
  failpoint("train.optimizer");
  const NamedRange range(Phase::optimizer, "optimizer");
  const double own_norm = summary.own_norm / parts_.scaler.scale();
  const double factor = optim::clip_factor(own_norm, clip_norm_) / parts_.scaler.scale();
  const bool in_one_pass = updates_in_one_pass();
  if (!in_one_pass) scale_grads(registry_, factor);
  before_update_();
  registry_.fetch_grads();
  replicas_.updated();
  if (in_one_pass) {
    const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(registry_.device());
    update_in_one_pass(update, lr, at::full({}, factor, fp32));
    return;
  }
  parts_.optimizer.step(update, lr);
  sign_step_.step();
  const OperationMark pack(StepWork::pack);
  registry_.refresh_trainable();
}

void Step::forward(std::span<const parallel::Microbatch> micro_batches,
                   const std::function<void(std::size_t, const at::Tensor&)>& call) {
  const auto count = static_cast<int>(micro_batches.size());
  const pipeline::Schedule schedule = parallel::stage_schedule(parts_.mesh.config(), count);
  if (schedule.placement.ranks > 1) parts_.objective.prepare(micro_batches);
  model::forward_stages(parts_.model, links_, parts_.mesh.rank(parallel::Axis::pp), schedule,
                        micro_batches, call);
}

void Step::average_replicas() {
  if (!replicas_.differ()) return;
  const NamedRange range(Phase::none, "average replicas");
  before_update_();
  replicas_.average();
}

}  // namespace trireme::train
