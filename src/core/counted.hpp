#pragma once
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace trireme {

/// Returns a number with its noun: counted(1, "rank") is "1 rank", counted(2, "rank") is "2 ranks".
template <class Integer>
[[nodiscard]] std::string counted(Integer number, std::string_view noun) {
  return formatted("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace trireme
