#include "optim/param_ranges.hpp"

namespace trireme {

std::vector<ParamRange> param_ranges(const ParamRegistry& registry) {
  const UnitLayout& layout = registry.layout();
  std::vector<ParamRange> ranges;
  for (const std::size_t unit : layout.trained_units()) {
    const IndexRange part = layout.part(unit);
    bool open = false;  // the last range goes on
    const auto end_at = [&](std::int64_t end) {
      if (open) ranges.back().count = end - ranges.back().begin;
      open = false;
    };
    for (const ParamSpan& span : layout.spans(unit, part)) {
      const ParamSpec& spec = registry.spec(span.id);
      const std::int64_t begin = span.begin - part.begin;
      if (open && spec.sign_rate == 0 && ranges.back().decay == spec.decay) continue;
      end_at(begin);
      if (spec.sign_rate > 0) continue;
      ranges.push_back({unit, begin, 0, spec.decay});
      open = true;
    }
    end_at(part.count());
  }
  return ranges;
}

}  // namespace trireme
