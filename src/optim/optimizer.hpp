#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "optim/config.hpp"
#include "parallel/param_registry.hpp"

namespace trireme {

/// One state buffer of an optimizer, laid out like the registry's flat main weights.
struct OptimizerSlot {
  std::string name;  // "exp_avg"
  at::Tensor flat;
};

/// Updates the registry's main weights from its main gradients.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Update number `update` (from 1, skipped updates do not count) at learning rate `lr`.
  /// Gradients are final: summed, scaled and clipped.
  virtual void step(std::int64_t update, double lr) = 0;

  /// State to be saved and loaded, beside the step number.
  [[nodiscard]] virtual std::vector<OptimizerSlot> slots() = 0;
};

/// By `config.name`. Throws Error(usage) naming the known ones.
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, ParamRegistry& registry);
std::vector<std::string> optimizer_names();

}  // namespace trireme
