#pragma once
#include <algorithm>
#include <string_view>

#include "core/error.hpp"

namespace trireme {

/// Returns the enum value of a valid `name`; `names` lists the names in the enum's order.
template <class Enum, class Names>
Enum by_name(const Names& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  TRIREME_ASSERT(found != names.end());
  return static_cast<Enum>(found - names.begin());
}

}  // namespace trireme
