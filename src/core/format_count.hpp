#pragma once
#include <string>

namespace trireme {

/// Formats a count with a unit: 1240000 is "1.24M".
std::string format_count(double value);

}  // namespace trireme
