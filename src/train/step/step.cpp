#include "train/step/step.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/log.hpp"
#include "core/number.hpp"
#include "core/process/failpoints.hpp"
#include "core/timer.hpp"
#include "model/stage_forward.hpp"
#include "optim/grad_norm.hpp"
#include "optim/sign_step.hpp"
#include "parallel/collectives.hpp"
#include "parallel/context/deal_tokens.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "parallel/units/average.hpp"
#include "pipeline/schedule_file.hpp"
#include "train/step/activation_count.hpp"
#include "train/step/microbatches.hpp"

namespace trireme {
namespace {

/// What a fault on this rank would leave.
void trigger_failpoints(ParamRegistry& registry, at::Tensor& loss_sum) {
  if (failpoint_triggered("train.bad_loss"))
    loss_sum.fill_(std::numeric_limits<double>::infinity());
  if (failpoint_triggered("train.overflow")) {
    ParamId first = 0;
    while (!registry.trained({first})) ++first;
    registry.main_grad(first).view({-1})[0].fill_(std::numeric_limits<float>::infinity());
  }
}

void scale_grads(const ParamRegistry& registry, double factor) {
  if (factor == 1.0) return;
  for (const std::size_t unit : registry.layout().trained_units())
    registry.grad_part(unit).mul_(factor);
}

/// Of the ranks of pp that hold the two copies of a tied table; null elsewhere, and where there is
/// one.
std::unique_ptr<Communicator> make_table_group(Transformer& model, const Mesh& mesh) {
  if (!model.config().tie_embeddings || mesh.size(Axis::pp) == 1) return nullptr;
  Communicator& pp = mesh.group(Axis::pp);
  const auto table = model.table_in_two();
  const bool trained = table && !model.registry().layout().units()[*table].frozen;
  return pp.split(trained ? 0 : -1, pp.rank(), "tied");
}

double thousandths(double value) {
  return std::round(1000 * value) / 1000;
}

}  // namespace

Step::Step(const StepParts& parts, double clip_norm)
    : parts_(parts),
      registry_(parts.model.registry()),
      clip_norm_(clip_norm),
      reduction_(make_grad_reduction(registry_, parts.mesh)),
      schedule_(stage_schedule(parts.mesh.config(), 0)),
      links_(parts.mesh.group(Axis::pp), schedule_.placement),
      passes_(parts.model, parts.objective, links_, parts.mesh.rank(Axis::pp)),
      first_bucket_s_(parts.measures.declare({"first_bucket_s", Combine::mean})),
      last_grad_s_(parts.measures.declare({"last_grad_s", Combine::mean})) {
  if (searches_schedule(parts.mesh.config()))
    passes_.time_with(&clock_.emplace(schedule_.placement.stages()));
  table_group_ = make_table_group(parts.model, parts.mesh);
  if (parts.mesh.size(Axis::pp) > 1 && registry_.device().is_cpu())
    bubble_share_ = parts.measures.declare({"bubble_share", Combine::mean});
  if (parts.model.config().moe.on()) {
    aux_loss_ = parts.measures.declare({"aux_loss", Combine::sum});
    expert_load_max_ = parts.measures.declare({"expert_load_max", Combine::max});
  }
  registry_.on_ready([this](ParamId id) { reduction_->ready(id); });
}

UpdateResult Step::run(std::span<const Batch> batches, std::int64_t update_terms, std::int64_t step,
                       std::int64_t update, double lr) {
  UpdateResult result;
  const MoeConfig& moe = parts_.model.config().moe;
  const bool alone = parts_.mesh.trains_alone();
  const double copies = alone ? parts_.mesh.size(Axis::dp) : 1;
  const double scale = copies * parts_.scaler.scale();
  std::vector<Microbatch> micro_batches;
  for (const Batch& batch : batches) {
    Microbatch whole = to_microbatch(batch, registry_.device(), step, /*training=*/true);
    if (moe.has_aux_loss()) whole.aux_weight = scale / update_aux_terms(batch, moe);
    micro_batches.push_back(deal_tokens(std::move(whole), parts_.mesh));
    result.num_targets += batch.num_targets;
    result.num_terms += num_terms(batch, parts_.objective.term());
  }
  const double grad_scale = scale / static_cast<double>(std::max<std::int64_t>(update_terms, 1));
  at::Tensor loss_sum =
      at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(registry_.device()));

  ActivationCount activations(registry_.weights(), counts_activations_);

  if (moe.on())
    parts_.model.router_tally().reset(moe, parts_.model.config().num_layers, registry_.device());
  reduction_->begin();
  registry_.begin_update(static_cast<int>(batches.size()));
  const PassHooks hooks{
      // Gradients leave in the last backward pass: up to there no rank waits for another's.
      .stop_before = stop_before_,
      .before_forward = [] { failpoint("train.forward"); },
      .before_backward =
          [&](bool last) {
            failpoint("train.backward");
            if (last) trigger_failpoints(registry_, loss_sum);
          }};
  const auto micro_steps = static_cast<int>(batches.size());
  choose_schedule(micro_steps);
  if (schedule_.placement.ranks > 1) parts_.objective.prepare(micro_batches);
  const Timer timer;
  if (!passes_.run(schedule_, micro_batches, grad_scale, hooks, activations, loss_sum)) {
    result.dropped = true;
    return result;
  }
  result.activation_bytes = activations.peak_bytes();
  result.in_flight = passes_.most_under_way();
  failpoint("train.reduce");
  const double passes_s = timer.seconds();
  reduction_->finish();
  add_up_over_stages(loss_sum, passes_s - links_.waited_s(), timer, result);
  result.overlap = reduction_->times();
  parts_.measures.record(first_bucket_s_, result.overlap.first_launch_s);
  parts_.measures.record(last_grad_s_, result.overlap.last_ready_s);

  if (moe.on()) take_router_tally(scale, result);
  const GradSummary summary = alone ? summarize_own_grads(registry_, parts_.mesh, loss_sum)
                                    : summarize_grads(registry_, parts_.mesh.world(), loss_sum);
  result.loss_sum = summary.loss_sum;
  result.grad_norm = summary.norm / parts_.scaler.scale();
  result.skipped = !summary.finite;
  result.overflow = result.skipped && parts_.scaler.dynamic() && parts_.scaler.scale() > 1.0;
  if (!result.skipped) {
    failpoint("train.optimizer");
    const double own_norm = summary.own_norm / parts_.scaler.scale();
    scale_grads(registry_, clip_factor(own_norm, clip_norm_) / parts_.scaler.scale());
    before_update_();
    registry_.fetch_grads();
    copies_equal_ = !alone;
    parts_.optimizer.step(update, lr);
    sign_step(registry_);
    registry_.refresh_trained();
  }
  parts_.scaler.update(result.skipped);
  if (clock_) search_schedule(micro_batches);
  if (alone && step % parts_.mesh.config().local_steps == 0) average_copies();
  return result;
}

void Step::take_schedule(const std::string& text) {
  const ParallelConfig& config = parts_.mesh.config();
  if (!searches_schedule(config) || text.empty()) return;
  pipeline::Schedule known = pipeline::parse_schedule(text, "the checkpoint's schedule");
  const bool is_in_limit =
      config.in_flight == 0 ||
      simulate(known, {{pipeline::PassTimes{}}}).peak() <= config.in_flight;  // it may be a new one
  if (is_in_limit && known.placement == stage_placement(config)) found_ = std::move(known);
}

void Step::choose_schedule(int micro_batches) {
  const bool fits = found_ && found_->micro_batches == micro_batches;
  if (schedule_.micro_batches == micro_batches && fits == runs_found_) return;
  runs_found_ = fits;
  if (!fits) {
    schedule_ = stage_schedule(parts_.mesh.config(), micro_batches, timing_);
    return;
  }
  schedule_ = *found_;
  passes_.time_with(nullptr);
  clock_.reset();
}

void Step::search_schedule(std::span<const Microbatch> micro_batches) {
  constexpr int kTimedUpdates = 2;  // the first one is slower than those that follow
  if (micro_batches.empty() || ++timed_updates_ < kTimedUpdates) return;
  timing_ = clock_->of_all(parts_.mesh, space_between_stages(parts_.model, micro_batches.front()));
  passes_.time_with(nullptr);
  clock_.reset();
  found_ = stage_schedule(parts_.mesh.config(), schedule_.micro_batches, timing_);
  if (parts_.mesh.world().rank() != 0) return;
  log::info(formatted(
      "schedule auto: by the measured times of passes, bubble {} is predicted; up to here {}",
      number_text(thousandths(simulate(*found_, timing_).bubble)),
      number_text(thousandths(simulate(schedule_, timing_).bubble))));
}

void Step::forward(std::span<const Microbatch> micro_batches,
                   const std::function<void(std::size_t, const at::Tensor&)>& call) {
  const auto count = static_cast<int>(micro_batches.size());
  if (schedule_.placement.ranks > 1) parts_.objective.prepare(micro_batches);
  passes_.run_forward(stage_schedule(parts_.mesh.config(), count), micro_batches, call);
}

void Step::add_up_over_stages(at::Tensor& loss_sum, double busy_s, const Timer& timer,
                              UpdateResult& result) {
  Communicator& pp = parts_.mesh.group(Axis::pp);
  if (pp.size() == 1) return;
  const at::Tensor sums = at::stack({loss_sum, at::full_like(loss_sum, busy_s)});
  all_reduce(pp, sums, ReduceOp::sum, "loss")->wait();
  loss_sum = sums[0];
  if (bubble_share_ && schedule_.micro_batches > 0) {  // all ranks end here together
    result.bubble_share = timer.seconds() * pp.size() / sums[1].item<double>() - 1;
    parts_.measures.record(*bubble_share_, *result.bubble_share);
  }
  if (table_group_) {
    const at::Tensor grads = registry_.grad_part(*parts_.model.table_in_two());
    all_reduce(*table_group_, grads, ReduceOp::sum, "grads of tied table")->wait();
  }
}

void Step::take_router_tally(double scale, UpdateResult& result) {
  const RouterTally& tally = parts_.model.router_tally();
  const MoeConfig& moe = parts_.model.config().moe;
  if (!parts_.mesh.trains_alone())
    all_reduce(parts_.mesh.world(), tally.counts, ReduceOp::sum, "load of experts")->wait();
  const at::Tensor mean = tally.counts.sum(1) / static_cast<double>(moe.num_experts);
  const at::Tensor load =
      tally.counts.amax(1) / mean.clamp_min(1.0 / static_cast<double>(moe.num_experts));
  const at::Tensor both = at::stack({tally.aux_loss / scale, load.amax()}).to(at::kCPU);
  result.aux_loss = both[0].item<double>();
  result.expert_load_max = both[1].item<double>();
  parts_.measures.record(*aux_loss_, *result.aux_loss);
  parts_.measures.record(*expert_load_max_, *result.expert_load_max);
}

void Step::average_copies() {
  if (copies_equal_) return;
  before_update_();
  std::vector<at::Tensor> values;
  for (const std::size_t unit : registry_.layout().trained_units())
    values.push_back(registry_.main_part(unit));
  for (const OptimizerSlot& slot : parts_.optimizer.slots()) values.push_back(slot.flat);
  average(parts_.mesh.group(Axis::dp), values, registry_.device());
  registry_.refresh_trained();
  copies_equal_ = true;
}

CommSeconds comm_seconds(const OverlapTimes& gradients, double waited_s) {
  return {waited_s + std::max(0.0, gradients.comm_s - gradients.exposed_s), waited_s};
}

}  // namespace trireme
