#include "core/format_count.hpp"

#include <array>
#include <cstdio>

namespace trireme {

std::string format_count(double value) {
  constexpr std::array<const char*, 5> kUnits{"%.0f", "%.1fk", "%.2fM", "%.2fG", "%.2fT"};
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), kUnits[unit], value);
  return buffer.data();
}

}  // namespace trireme
