#pragma once
#include <cstdint>
#include <vector>

#include "parallel/param_registry.hpp"

namespace trireme {

/// Neighbouring elements of this rank's part of a unit that decay alike: what an optimizer updates
/// at once.
struct ParamRange {
  std::size_t unit = 0;
  std::int64_t begin = 0;  // element of the part
  std::int64_t count = 0;
  bool decay = false;

  [[nodiscard]] at::Tensor weights(const ParamRegistry& registry) const {
    return registry.main_part(unit).narrow(0, begin, count);
  }

  [[nodiscard]] at::Tensor grads(const ParamRegistry& registry) const {
    return registry.update_grad(unit).narrow(0, begin, count);
  }

  /// Of a buffer that registry.make_state() made.
  [[nodiscard]] at::Tensor state(const ParamRegistry& registry, const at::Tensor& flat) const {
    return registry.part_of(flat, unit).narrow(0, begin, count);
  }
};

/// All elements that an optimizer updates on this rank, in order. The padding behind a parameter, zeros, is part of
/// its range: wherever a unit is cut, a kernel's whole vectors stay whole.
std::vector<ParamRange> param_ranges(const ParamRegistry& registry);

}  // namespace trireme
