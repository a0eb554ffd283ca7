#include "optim/adamw.hpp"

#include <array>
#include <utility>

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
  groups[0].decay = config_.weight_decay;
  const at::Tensor step =
      at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(exp_avg_.device()));
  for (const auto& [elements, decay] : update_ranges(registry, rated.params)) {
    Group& group = groups[decay ? 0 : 1];
    group.factor = rated.factor;
    group.weights.push_back(elements.weights(registry));
    group.grads.push_back(elements.grads(registry));
    group.exp_avgs.push_back(elements.state(registry, exp_avg_));
    group.exp_avg_sqs.push_back(elements.state(registry, exp_avg_sq_));
    group.steps.push_back(step);
  }
  for (Group& group : groups)
    if (!group.weights.empty()) groups_.push_back(std::move(group));
}

void AdamW::step(std::int64_t update, double lr) {
  const at::NoGradGuard no_grad;
  for (Group& group : groups_) {
    group.steps.front().fill_(static_cast<double>(update));
    at::_fused_adamw_(group.weights, group.grads, group.exp_avgs, group.exp_avg_sqs, {},
                      group.steps, lr * group.factor, config_.beta1, config_.beta2, group.decay,
                      config_.eps,
                      /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

std::vector<OptimizerSlot> AdamW::slots() {
  return {{"exp_avg", exp_avg_}, {"exp_avg_sq", exp_avg_sq_}};
}

}  // namespace trireme::optim
