#pragma once
#include <algorithm>
#include <string_view>

#include "core/error.hpp"

namespace trireme {

/// The value of an enum whose names, in its order, are `names`; of a name that a check has let
/// through.
template <class Enum, class Names>
Enum by_name(const Names& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  TRIREME_ASSERT(found != names.end());
  return static_cast<Enum>(found - names.begin());
}

}  // namespace trireme
