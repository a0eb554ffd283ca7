#include "train/step/passes.hpp"

#include <algorithm>

#include "core/timer.hpp"
#include "device/device.hpp"
#include "model/stages/stage_forward.hpp"

namespace trireme {

using pipeline::Pass;
using pipeline::PassKind;

struct Passes::Update {
  const pipeline::Placement& placement;
  std::span<const Microbatch> micro_batches;
  double grad_scale;
  const PassHooks& hooks;
  ActivationCount& activations;
  at::Tensor& loss_sum;

  [[nodiscard]] std::size_t place(const Pass& pass) const {
    return placement.place_on_rank(pass.stage);
  }

  [[nodiscard]] const Microbatch& batch(const Pass& pass) const {
    return micro_batches[static_cast<std::size_t>(pass.micro_batch)];
  }

  [[nodiscard]] bool is_last(const Pass& pass) const {
    return pass.stage + 1 == placement.stages();
  }

  /// Returns a unique number for this micro-batch in this stage.
  [[nodiscard]] std::size_t number(const Pass& pass) const {
    return static_cast<std::size_t>(pass.stage) * micro_batches.size() +
           static_cast<std::size_t>(pass.micro_batch);
  }
};

bool Passes::run(const pipeline::Schedule& schedule, std::span<const Microbatch> micro_batches,
                 double grad_scale, const PassHooks& hooks, ActivationCount& activations,
                 at::Tensor& loss_sum) {
  const Update update{schedule.placement, micro_batches, grad_scale, hooks, activations, loss_sum};
  const std::vector<Pass>& list = schedule.lists[static_cast<std::size_t>(pp_rank_)];
  const auto num_micro_batches = static_cast<std::int64_t>(micro_batches.size());
  // Ranks of a pipeline run different actions at one time, so they vote only before the first one,
  // when no receive is pending.
  const bool alone = schedule.placement.ranks == 1;
  if (!alone && hooks.cancel_before(0, num_micro_batches)) return false;
  begin(schedule, micro_batches);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Pass& pass = list[i];
    if (alone && pass.kind == PassKind::forward &&
        hooks.cancel_before(pass.micro_batch, num_micro_batches))
      return false;
    const double waited_s = links_.waited_s();
    const Timer timer;
    run_pass(update, pass, /*last=*/i + 1 == list.size());
    if (hooks.pass_took) {
      finish_work(model_.registry().device());
      hooks.pass_took(pass, timer.seconds() - (links_.waited_s() - waited_s));
    }
    links_.poll();
  }
  links_.finish();
  return true;
}

void Passes::run_pass(const Update& update, const Pass& pass, bool last) {
  if (pass.kind == PassKind::forward) return forward(update, pass);
  if (pass.kind == PassKind::weight_grad) {
    update.hooks.before_backward(last);
  } else {
    backward(update, pass, last);
  }
  if (!gives_weight_grad(pass.kind)) return;
  add_weight_grads(pass);
  update.activations.after_backward(update.number(pass));
}

void Passes::begin(const pipeline::Schedule& schedule, std::span<const Microbatch> micro_batches) {
  under_way_.clear();
  most_under_way_ = 0;
  std::vector<StageUse> uses;
  for (const Pass& pass : schedule.lists[static_cast<std::size_t>(pp_rank_)]) {
    if (pass.kind == PassKind::weight_grad) continue;
    uses.push_back({schedule.placement.place_on_rank(pass.stage), pass.kind == PassKind::forward});
  }
  model_.begin_update(uses);
  links_.begin(schedule, [this, micro_batches](int i) {
    return space_between_stages(model_, micro_batches[static_cast<std::size_t>(i)]);
  });
}

void Passes::forward(const Update& update, const Pass& pass) {
  UnderWay& one = under_way_[{pass.stage, pass.micro_batch}];
  most_under_way_ = std::max(most_under_way_, static_cast<int>(under_way_.size()));
  const at::Tensor in = links_.receive(StageCargo::activations, pass.stage, pass.micro_batch);
  update.hooks.before_forward();
  update.activations.before_forward();
  const Microbatch& batch = update.batch(pass);
  at::Tensor out = model_.forward(update.place(pass), batch, in, one.tape);
  std::int64_t passed_on = 0;
  if (update.is_last(pass)) {
    update.loss_sum.add_(objective_.forward(batch, out, update.grad_scale, one.loss));
    out.reset();
    model_.turn(one.tape, one.loss.grad_hidden);
    one.loss.grad_hidden.reset();
  } else {
    passed_on = static_cast<std::int64_t>(out.nbytes());
    links_.send(StageCargo::activations, pass.stage, pass.micro_batch, out);
  }
  const std::int64_t came = in.defined() ? static_cast<std::int64_t>(in.nbytes()) : 0;
  update.activations.after_forward(update.number(pass), came - passed_on);
}

void Passes::backward(const Update& update, const Pass& pass, bool last) {
  UnderWay& one = under_way_.at({pass.stage, pass.micro_batch});
  const at::Tensor grad = links_.receive(StageCargo::gradients, pass.stage, pass.micro_batch);
  update.hooks.before_backward(last);
  ParamRegistry& registry = model_.registry();
  if (pass.kind == PassKind::input_grad) registry.collect_turns(&one.turns);
  if (update.is_last(pass)) objective_.backward(one.loss);
  const at::Tensor in_grad =
      model_.backward(update.place(pass), update.batch(pass), one.tape, grad);
  registry.collect_turns(nullptr);
  links_.send(StageCargo::gradients, pass.stage, pass.micro_batch, in_grad);
}

void Passes::add_weight_grads(const Pass& pass) {
  const auto one = under_way_.find({pass.stage, pass.micro_batch});
  for (const std::function<void()>& add : one->second.turns) add();
  under_way_.erase(one);
}

}  // namespace trireme
