#include "core/format_count.hpp"

#include <array>
#include <cstddef>
#include <cstdio>

#include "core/error.hpp"

namespace trireme {
namespace {

struct Scaled {
  std::string number;
  std::string_view prefix;
};

Scaled scale(double value) {
  constexpr std::array<std::string_view, 5> kPrefixes{"", "k", "M", "G", "T"};
  std::size_t power = 0;
  while (value >= 1000 && power + 1 < kPrefixes.size()) {
    value /= 1000;
    ++power;
  }
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(power < 2 ? power : 2),
                value);
  return {buffer.data(), kPrefixes[power]};
}

}  // namespace

std::string format_count(double value) {
  const Scaled scaled = scale(value);
  return cat(scaled.number, scaled.prefix);
}

std::string format_quantity(double value, std::string_view unit) {
  const Scaled scaled = scale(value);
  return cat(scaled.number, " ", scaled.prefix, unit);
}

}  // namespace trireme
