#include "optim/sign_step.hpp"

#include <ATen/ATen.h>

namespace trireme {

void sign_step(ParamRegistry& registry) {
  const at::NoGradGuard no_grad;
  const UnitLayout& layout = registry.layout();
  for (const std::size_t unit : layout.trained_units()) {
    const IndexRange part = layout.part(unit);
    for (const ParamSpan& span : layout.spans(unit, part)) {
      const double rate = registry.spec(span.id).sign_rate;
      if (rate == 0) continue;
      const auto of_span = [&](const at::Tensor& all) {
        return all.narrow(0, span.begin - part.begin, span.count);
      };
      of_span(registry.main_part(unit)).sub_(of_span(registry.update_grad(unit)).sign(), rate);
    }
  }
}

}  // namespace trireme
