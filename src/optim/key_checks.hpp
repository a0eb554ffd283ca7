#pragma once
#include <string>

#include "core/problems.hpp"

/// Checks that optimizers share. A number that is none fails each of them.
namespace trireme {

inline void check_fraction(const std::string& key, double value, Problems& problems) {
  if (!(value >= 0 && value < 1)) problems.add(key, value, "must be in [0, 1)");
}

inline void check_not_negative(const std::string& key, double value, Problems& problems) {
  if (!(value >= 0)) problems.add(key, value, "must be 0 or more");
}

}  // namespace trireme
