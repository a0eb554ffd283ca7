#include "optim/adamw.hpp"

namespace trireme {

AdamW::AdamW(const OptimConfig& config, ParamRegistry& registry)
    : config_(config),
      exp_avg_(at::zeros_like(registry.flat_main())),
      exp_avg_sq_(at::zeros_like(registry.flat_main())),
      groups_(2) {
  groups_[0].decay = config.weight_decay;
  const at::Tensor step =
      at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(registry.device()));
  for (ParamId first = 0; first < registry.size();) {
    ParamId end = first + 1;
    while (end < registry.size() && registry.spec(end).decay == registry.spec(first).decay) ++end;
    Group& group = groups_[registry.spec(first).decay ? 0 : 1];
    const std::int64_t begin = registry.flat_begin(first);
    const std::int64_t count = registry.flat_end(end - 1) - begin;
    group.weights.push_back(registry.flat_main().narrow(0, begin, count));
    group.grads.push_back(registry.flat_grad().narrow(0, begin, count));
    group.exp_avgs.push_back(exp_avg_.narrow(0, begin, count));
    group.exp_avg_sqs.push_back(exp_avg_sq_.narrow(0, begin, count));
    group.steps.push_back(step);
    first = end;
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

}  // namespace trireme
