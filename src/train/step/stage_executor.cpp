#include "train/step/stage_executor.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/named_range.hpp"
#include "core/timer.hpp"
#include "device/device.hpp"
#include "model/stages/stage_forward.hpp"

namespace trireme::train {

using pipeline::ActionKind;
using pipeline::StageAction;

struct StageExecutor::Update {
  const pipeline::Placement& placement;
  std::span<const parallel::Microbatch> micro_batches;
  double grad_scale;
  const ActionHooks& hooks;
  ActivationCount& activations;
  at::Tensor& loss_sum;

  [[nodiscard]] std::size_t place(const pipeline::StageAction& pass) const {
    return placement.local_stage_index(pass.stage);
  }

  [[nodiscard]] const parallel::Microbatch& batch(const pipeline::StageAction& pass) const {
    return micro_batches[static_cast<std::size_t>(pass.micro_batch)];
  }

  [[nodiscard]] bool is_last(const pipeline::StageAction& pass) const {
    return pass.stage + 1 == placement.stages();
  }

  /// Returns a unique number for this micro-batch in this stage.
  [[nodiscard]] std::size_t number(const pipeline::StageAction& pass) const {
    return static_cast<std::size_t>(pass.stage) * micro_batches.size() +
           static_cast<std::size_t>(pass.micro_batch);
  }
};

namespace {

/// Returns true if action `i` is the forward pass of a whole micro-batch and the next action is its
/// backward pass.
bool begins_micro_batch(const pipeline::Schedule& schedule, std::span<const StageAction> list,
                        std::size_t i) {
  return schedule.placement.stages() == 1 && i + 1 < list.size() &&
         list[i].kind == ActionKind::forward && list[i + 1].kind == ActionKind::backward &&
         list[i].micro_batch == list[i + 1].micro_batch;
}

}  // namespace

bool StageExecutor::run(const pipeline::Schedule& schedule,
                        std::span<const parallel::Microbatch> micro_batches, double grad_scale,
                        const ActionHooks& hooks, ActivationCount& activations,
                        at::Tensor& loss_sum) {
  const Update update{schedule.placement, micro_batches, grad_scale, hooks, activations, loss_sum};
  const std::vector<pipeline::StageAction>& list =
      schedule.lists[static_cast<std::size_t>(pp_rank_)];
  const auto num_micro_batches = static_cast<std::int64_t>(micro_batches.size());
  // Ranks of a pipeline run different actions at one time, so they vote only before the first one,
  // when no receive is pending.
  const bool alone = schedule.placement.ranks == 1;
  if (!alone && hooks.cancel_before(0, num_micro_batches)) return false;
  begin(schedule, micro_batches);
  const bool may_launch = captured_ != nullptr && !hooks.action_took && !activations.is_on();
  if (captured_ != nullptr) captured_->begin_update(num_micro_batches);
  if (captured_ != nullptr && !may_launch)
    for (const parallel::Microbatch& batch : micro_batches) captured_->pad(batch);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const pipeline::StageAction& pass = list[i];
    if (alone && pass.kind == pipeline::ActionKind::forward &&
        hooks.cancel_before(pass.micro_batch, num_micro_batches))
      return false;
    if (may_launch && begins_micro_batch(schedule, list, i)) {
      run_micro_batch(update, list, i++);
      continue;
    }
    const double waited_s = links_.waited_s();
    const Timer timer;
    run_pass(update, pass, /*last=*/i + 1 == list.size());
    if (hooks.action_took) {
      device::finish_work(model_.registry().device());
      hooks.action_took(pass, timer.seconds() - (links_.waited_s() - waited_s));
    }
    links_.poll();
  }
  links_.finish();
  return true;
}

void StageExecutor::run_pass(const Update& update, const pipeline::StageAction& pass, bool last) {
  const bool is_forward = pass.kind == pipeline::ActionKind::forward;
  const NamedRange range(is_forward ? Phase::forward : Phase::backward, [&] {
    return formatted("{} of micro-batch {}, stage {}", is_forward ? "forward" : "backward",
                     pass.micro_batch, pass.stage);
  });
  if (is_forward) return forward(update, pass);
  if (pass.kind == pipeline::ActionKind::weight_grad) {
    update.hooks.before_backward(last);
  } else {
    backward(update, pass, last);
  }
  if (!pipeline::gives_weight_grad(pass.kind)) return;
  add_weight_grads(pass);
  update.activations.after_backward(update.number(pass));
}

void StageExecutor::run_micro_batch(const Update& update, std::span<const StageAction> list,
                                    std::size_t i) {
  const bool last = i + 2 == list.size();
  max_in_flight_ = std::max(max_in_flight_, 1);
  captured_->run({.batch = update.batch(list[i]),
                  .grad_scale = update.grad_scale,
                  .loss_sum = update.loss_sum,
                  .starts_grads = i == 0,
                  .completes_grads = last,
                  .run =
                      [&] {
                        run_pass(update, list[i], /*last=*/false);
                        run_pass(update, list[i + 1], last);
                      },
                  .before_launch =
                      [&] {
                        update.hooks.before_forward();
                        update.hooks.before_backward(last);
                      }});
}

void StageExecutor::begin(const pipeline::Schedule& schedule,
                          std::span<const parallel::Microbatch> micro_batches) {
  under_way_.clear();
  max_in_flight_ = 0;
  std::vector<model::StageUse> uses;
  for (const pipeline::StageAction& pass : schedule.lists[static_cast<std::size_t>(pp_rank_)]) {
    if (pass.kind == pipeline::ActionKind::weight_grad) continue;
    uses.push_back({schedule.placement.local_stage_index(pass.stage),
                    pass.kind == pipeline::ActionKind::forward});
  }
  model_.begin_update(uses);
  links_.begin(schedule, [this, micro_batches](int i) {
    return model::stage_message_buffer(model_, micro_batches[static_cast<std::size_t>(i)]);
  });
}

void StageExecutor::forward(const Update& update, const pipeline::StageAction& pass) {
  UnderWay& one = under_way_[{pass.stage, pass.micro_batch}];
  max_in_flight_ = std::max(max_in_flight_, static_cast<int>(under_way_.size()));
  const at::Tensor in =
      links_.receive(parallel::StageMessage::activations, pass.stage, pass.micro_batch);
  update.hooks.before_forward();
  update.activations.before_forward();
  const parallel::Microbatch& batch = update.batch(pass);
  at::Tensor out = model_.forward(update.place(pass), batch, in, one.saved);
  std::int64_t passed_on = 0;
  if (update.is_last(pass)) {
    update.loss_sum.add_(objective_.forward(batch, out, update.grad_scale, one.loss));
    out.reset();
    model_.backward_final_norm(one.saved, one.loss.grad_hidden);
    one.loss.grad_hidden.reset();
  } else {
    passed_on = static_cast<std::int64_t>(out.nbytes());
    links_.send(parallel::StageMessage::activations, pass.stage, pass.micro_batch, out);
  }
  const std::int64_t came = in.defined() ? static_cast<std::int64_t>(in.nbytes()) : 0;
  update.activations.after_forward(update.number(pass), came - passed_on);
}

void StageExecutor::backward(const Update& update, const pipeline::StageAction& pass, bool last) {
  UnderWay& one = under_way_.at({pass.stage, pass.micro_batch});
  const at::Tensor grad =
      links_.receive(parallel::StageMessage::gradients, pass.stage, pass.micro_batch);
  update.hooks.before_backward(last);
  parallel::ParamRegistry& registry = model_.registry();
  if (pass.kind == pipeline::ActionKind::input_grad) registry.collect_deferred_grads(&one.turns);
  if (update.is_last(pass)) objective_.backward(one.loss);
  const at::Tensor in_grad =
      model_.backward(update.place(pass), update.batch(pass), one.saved, grad);
  registry.collect_deferred_grads(nullptr);
  links_.send(parallel::StageMessage::gradients, pass.stage, pass.micro_batch, in_grad);
}

void StageExecutor::add_weight_grads(const pipeline::StageAction& pass) {
  const auto one = under_way_.find({pass.stage, pass.micro_batch});
  for (const std::function<void()>& add : one->second.turns) add();
  under_way_.erase(one);
}

}  // namespace trireme::train
