#include "optim/sgd.hpp"

namespace trireme::optim {

void check(const SgdConfig& config, Problems& problems) {
  check_not_negative("optim.weight_decay", config.weight_decay, problems);
  check_fraction("optim.momentum", config.momentum, problems);
  if (config.nesterov && config.momentum == 0)
    problems.add("optim.nesterov", config.nesterov, "needs optim.momentum above 0");
}

Sgd::Sgd(const Config& config, parallel::ParamRegistry& registry,
         std::span<const ParamRange> params)
    : config_(config), groups_(2) {
  groups_[0].decay = config.weight_decay;
  if (num_slots(config) > 0) momentum_buffer_ = registry.make_state();
  for (const auto& [elements, decay] : update_ranges(registry, params)) {
    Group& group = groups_[decay ? 0 : 1];
    group.weights.push_back(elements.weights(registry));
    group.grads.push_back(elements.grads(registry));
    if (momentum_buffer_.defined())
      group.momentum_buffers.push_back(elements.state(registry, momentum_buffer_));
  }
}

void Sgd::step(std::int64_t /*update*/, double lr) {
  const at::NoGradGuard no_grad;
  for (const Group& group : groups_) {
    if (group.weights.empty()) continue;
    // With a zero buffer, the first step equals that of torch, which starts from the gradient.
    at::_fused_sgd_(group.weights, group.grads, group.momentum_buffers, group.decay,
                    config_.momentum, lr, /*dampening=*/0, config_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/false);
  }
}

std::vector<OptimizerSlot> Sgd::slots() {
  if (!momentum_buffer_.defined()) return {};
  return {{"momentum_buffer", momentum_buffer_}};
}

}  // namespace trireme::optim
