#include "optim/adamw.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "ops/cuda/grad_norm.hpp"
#include "ops/operations.hpp"
#include "ops/path.hpp"

namespace trireme::optim {

void check(const AdamWConfig& config, Problems& problems) {
  check_not_negative("optim.weight_decay", config.weight_decay, problems);
  check_fraction("optim.beta1", config.beta1, problems);
  check_fraction("optim.beta2", config.beta2, problems);
  if (!(config.eps > 0)) problems.add("optim.eps", config.eps, "must be more than 0");
}

AdamW::AdamW(const Config& config, parallel::ParamRegistry& registry,
             std::span<const ParamRange> params)
    : AdamW(config, registry, std::array{RatedParams{{params.begin(), params.end()}}}) {}

AdamW::AdamW(const Config& config, parallel::ParamRegistry& registry,
             std::span<const RatedParams> params)
    : config_(config), exp_avg_(registry.make_state()), exp_avg_sq_(registry.make_state()) {
  for (const RatedParams& rated : params) add(registry, rated);
}

void AdamW::add(parallel::ParamRegistry& registry, const RatedParams& rated) {
  std::array<Group, 2> groups;
  groups[0].decay = rated.weight_decay.value_or(config_.weight_decay);
  groups[1].decay = rated.weight_decay.value_or(0);
  const at::Tensor step =
      at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(exp_avg_.device()));
  for (const auto& [elements, decay] : update_ranges(registry, rated.params)) {
    Group& group = groups[decay ? 0 : 1];
    group.factor = rated.factor;
    group.beta1 = rated.beta1.value_or(config_.beta1);
    group.beta2 = rated.beta2.value_or(config_.beta2);
    const ops::AdamWTensors piece{
        elements.weights(registry),         elements.grads(registry),
        elements.state(registry, exp_avg_), elements.state(registry, exp_avg_sq_),
        elements.copies(registry),          group.decay};
    group.weights.push_back(piece.weights);
    group.grads.push_back(piece.grads);
    group.exp_avgs.push_back(piece.exp_avg);
    group.exp_avg_sqs.push_back(piece.exp_avg_sq);
    group.steps.push_back(step);
    pieces_.push_back(piece);
  }
  for (Group& group : groups)
    if (!group.weights.empty()) groups_.push_back(std::move(group));
}

void AdamW::step(std::int64_t update, double lr) {
  const at::NoGradGuard no_grad;
  for (Group& group : groups_) {
    group.steps.front().fill_(static_cast<double>(update));
    at::_fused_adamw_(group.weights, group.grads, group.exp_avgs, group.exp_avg_sqs, {},
                      group.steps, lr * group.factor, group.beta1, group.beta2, group.decay,
                      config_.eps,
                      /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

bool AdamW::has_one_pass() const {
  if (path_of(ops::Operation::optimizer, ops::Path::fast) == ops::Path::plain) return false;
  const bool same_values = std::all_of(groups_.begin(), groups_.end(), [&](const Group& group) {
    return group.factor == 1 && group.beta1 == config_.beta1 && group.beta2 == config_.beta2;
  });
  return same_values &&
         std::all_of(pieces_.begin(), pieces_.end(), [](const ops::AdamWTensors& piece) {
           return ops::accepts_adamw(piece) &&
                  (piece.grads.is_cpu() || ops::cuda::accepts_grad_norm(piece.grads));
         });
}

void AdamW::step_in_one_pass(std::int64_t update, double lr, const at::Tensor& factor) {
  const at::NoGradGuard no_grad;
  ops::adamw(pieces_,
             {.lr = lr,
              .beta1 = config_.beta1,
              .beta2 = config_.beta2,
              .eps = config_.eps,
              .update = update},
             factor);
}

std::vector<OptimizerSlot> AdamW::slots() {
  return {{"exp_avg", exp_avg_}, {"exp_avg_sq", exp_avg_sq_}};
}

}  // namespace trireme::optim
