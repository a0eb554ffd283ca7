#pragma once
#include <ATen/ATen.h>

#include "optim/optimizer.hpp"
#include "parallel/param_registry.hpp"

namespace trireme::optim {

/// Exponential moving average (EMA) of the trainable master weights, in their dtype and sharded
/// like them: ema = decay * ema + (1 - decay) * weights after each update. It starts with the
/// weights before the first update. Source: Polyak and Juditsky, "Acceleration of stochastic
/// approximation by averaging", 1992; the exponential form is that of most diffusion trainers.
class WeightAverage {
 public:
  /// `registry` must be allocated and outlive this object.
  WeightAverage(parallel::ParamRegistry& registry, double decay);

  /// Sets the average to the present weights.
  void reset();

  /// Adds the weights after an update.
  void update();

  /// Exchanges the average and the weights, also those that the model computes with. Call it twice
  /// around a validation. Collective under ZeRO.
  void swap();

  /// Returns the state to save and load: "ema".
  [[nodiscard]] OptimizerSlot slot() const { return {"ema", flat_}; }

 private:
  parallel::ParamRegistry& registry_;
  double decay_;
  at::Tensor flat_;
};

}  // namespace trireme::optim
