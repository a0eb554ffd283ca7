#include "optim/sign_step.hpp"

#include "optim/param_ranges.hpp"

namespace trireme {

SignStep::SignStep(const ParamRegistry& registry) {
  for (const ParamRange& range : param_ranges(registry)) {
    const double rate = registry.spec(range.id).sign_rate;
    if (rate == 0) continue;
    targets_.push_back({range.elements.weights(registry), range.elements.grads(registry), rate});
  }
}

void SignStep::step() const {
  const at::NoGradGuard no_grad;
  for (const Target& target : targets_) target.weights.sub_(target.grads.sign(), target.rate);
}

}  // namespace trireme
