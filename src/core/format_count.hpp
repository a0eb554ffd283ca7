#pragma once
#include <string>
#include <string_view>

namespace trireme {

/// Formats a count with a prefix: 1240000 is "1.24M".
std::string format_count(double value);

/// Formats a quantity with its unit: (2.28e11, "FLOP/s") is "228.00 GFLOP/s".
std::string format_quantity(double value, std::string_view unit);

}  // namespace trireme
