#pragma once
#include <string>

namespace trireme {

/// Returns a measured or computed number with at most `digits` significant digits, for messages:
/// 7.7657938889884015 is "7.766", 3e-05 is "3e-05". number_text() keeps all digits.
std::string rounded_text(double value, int digits = 4);

}  // namespace trireme
