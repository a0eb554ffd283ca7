#include "core/rounded_text.hpp"

#include <array>
#include <cstdio>

namespace trireme {

std::string rounded_text(double value, int digits) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return text.data();
}

}  // namespace trireme
