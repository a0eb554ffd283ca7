#include "optim/lion.hpp"

#include <algorithm>

namespace trireme::optim {
namespace {

/// Elements updated at once, so that the direction buffer stays smaller than the model.
constexpr std::int64_t kMostElements = std::int64_t{1} << 22;

}  // namespace

void check(const LionConfig& config, Problems& problems) {
  check_not_negative("optim.weight_decay", config.weight_decay, problems);
  check_fraction("optim.beta1", config.beta1, problems);
  check_fraction("optim.beta2", config.beta2, problems);
}

Lion::Lion(const Config& config, parallel::ParamRegistry& registry,
           std::span<const ParamRange> params)
    : config_(config), momentum_(registry.make_state()) {
  for (const auto& [range, decay] : update_ranges(registry, params)) {
    for (std::int64_t done = 0; done < range.count; done += kMostElements) {
      const FlatRange part{range.unit, range.begin + done,
                           std::min(kMostElements, range.count - done)};
      chunks_.push_back({decay ? config.weight_decay : 0.0, part.weights(registry),
                         part.grads(registry), part.state(registry, momentum_)});
    }
  }
}

void Lion::step(std::int64_t /*update*/, double lr) {
  const at::NoGradGuard no_grad;
  for (Chunk& chunk : chunks_) {
    const at::Tensor direction =
        chunk.momentum.mul(config_.beta1).add_(chunk.grads, 1 - config_.beta1).sign_();
    chunk.weights.mul_(1 - lr * chunk.decay).add_(direction, -lr);
    chunk.momentum.mul_(config_.beta2).add_(chunk.grads, 1 - config_.beta2);
  }
}

std::vector<OptimizerSlot> Lion::slots() {
  return {{"momentum", momentum_}};
}

}  // namespace trireme::optim
