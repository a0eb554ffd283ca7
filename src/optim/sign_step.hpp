#pragma once
#include <vector>

#include "parallel/param_registry.hpp"

namespace trireme {

/// Updates the parameters that no optimizer updates (ParamSpec::sign_rate): moves each element by the
/// rate against the sign of its gradient.
class SignStep {
 public:
  /// The registry is allocated and outlives this object.
  explicit SignStep(const ParamRegistry& registry);

  /// Gradients are final; their size has no effect.
  void step() const;

 private:
  struct Target {
    at::Tensor weights;
    at::Tensor grads;
    double rate;
  };

  std::vector<Target> targets_;
};

}  // namespace trireme
