#include "optim/param_ranges.hpp"

namespace trireme {

std::vector<ParamRange> param_ranges(const ParamRegistry& registry) {
  const UnitLayout& layout = registry.layout();
  std::vector<ParamRange> ranges;
  for (const std::size_t unit : layout.trained_units()) {
    const IndexRange part = layout.part(unit);
    const std::size_t first = ranges.size();
    for (const ParamSpan& span : layout.spans(unit, part)) {
      const bool decay = registry.spec(span.id).decay;
      if (ranges.size() > first && ranges.back().decay == decay) continue;
      const std::int64_t begin = span.begin - part.begin;
      if (ranges.size() > first) ranges.back().count = begin - ranges.back().begin;
      ranges.push_back({unit, begin, 0, decay});
    }
    if (ranges.size() > first) ranges.back().count = part.count() - ranges.back().begin;
  }
  return ranges;
}

}  // namespace trireme
