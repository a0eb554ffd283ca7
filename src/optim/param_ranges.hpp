#pragma once
#include <cstdint>
#include <vector>

#include "parallel/param_registry.hpp"

namespace trireme {

/// Neighbouring parameters that decay alike, as one range of the registry's flat buffers.
struct ParamRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  bool decay = false;

  [[nodiscard]] at::Tensor of(const at::Tensor& flat) const { return flat.narrow(0, begin, count); }
};

/// All parameters, in the order of the buffers.
std::vector<ParamRange> param_ranges(const ParamRegistry& registry);

}  // namespace trireme
