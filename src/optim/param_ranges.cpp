#include "optim/param_ranges.hpp"

namespace trireme {

std::vector<ParamRange> param_ranges(const ParamRegistry& registry) {
  std::vector<ParamRange> ranges;
  for (ParamId first = 0; first < registry.size();) {
    const bool decay = registry.spec(first).decay;
    ParamId end = first + 1;
    while (end < registry.size() && registry.spec(end).decay == decay) ++end;
    const std::int64_t begin = registry.flat_begin(first);
    ranges.push_back({begin, registry.flat_end(end - 1) - begin, decay});
    first = end;
  }
  return ranges;
}

}  // namespace trireme
