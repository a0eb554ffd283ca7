#include "optim/sign_step.hpp"

#include "optim/param_ranges.hpp"

namespace trireme {

void sign_step(ParamRegistry& registry) {
  const at::NoGradGuard no_grad;
  for (const ParamRange& range : param_ranges(registry)) {
    const double rate = registry.spec(range.id).sign_rate;
    if (rate == 0) continue;
    range.elements.weights(registry).sub_(range.elements.grads(registry).sign(), rate);
  }
}

}  // namespace trireme
