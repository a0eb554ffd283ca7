#pragma once
#include <concepts>
#include <limits>
#include <string>

namespace trireme {

/// Returns all hexadecimal digits of a number, lower case, highest first: 8-bit 10 is "0a".
template <std::unsigned_integral T>
std::string hex_text(T number) {
  std::string text;
  for (int shift = std::numeric_limits<T>::digits - 4; shift >= 0; shift -= 4)
    text += "0123456789abcdef"[(number >> shift) & 15];
  return text;
}

}  // namespace trireme
