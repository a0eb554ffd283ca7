#include "optim/adamw.hpp"

namespace trireme::optim {

void check(const AdamWConfig& config, Problems& problems) {
  check_not_negative("optim.weight_decay", config.weight_decay, problems);
  check_fraction("optim.beta1", config.beta1, problems);
  check_fraction("optim.beta2", config.beta2, problems);
  if (!(config.eps > 0)) problems.add("optim.eps", config.eps, "must be more than 0");
}

AdamW::AdamW(const Config& config, parallel::ParamRegistry& registry,
             std::span<const ParamRange> params)
    : config_(config),
      exp_avg_(registry.make_state()),
      exp_avg_sq_(registry.make_state()),
      groups_(2) {
  groups_[0].decay = config.weight_decay;
  const at::Tensor step =
      at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(exp_avg_.device()));
  for (const auto& [elements, decay] : update_ranges(registry, params)) {
    Group& group = groups_[decay ? 0 : 1];
    group.weights.push_back(elements.weights(registry));
    group.grads.push_back(elements.grads(registry));
    group.exp_avgs.push_back(elements.state(registry, exp_avg_));
    group.exp_avg_sqs.push_back(elements.state(registry, exp_avg_sq_));
    group.steps.push_back(step);
  }
}

void AdamW::step(std::int64_t update, double lr) {
  const at::NoGradGuard no_grad;
  for (Group& group : groups_) {
    if (group.weights.empty()) continue;
    group.steps.front().fill_(static_cast<double>(update));
    at::_fused_adamw_(group.weights, group.grads, group.exp_avgs, group.exp_avg_sqs, {},
                      group.steps, lr, config_.beta1, config_.beta2, group.decay, config_.eps,
                      /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

std::vector<OptimizerSlot> AdamW::slots() {
  return {{"exp_avg", exp_avg_}, {"exp_avg_sq", exp_avg_sq_}};
}

}  // namespace trireme::optim
