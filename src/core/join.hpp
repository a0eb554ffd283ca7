#pragma once
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

/// Returns `text_of(item)` of every item, separated by `separator`: "tp, cp, dp".
template <class Items, class TextOf = std::identity>
[[nodiscard]] std::string joined(const Items& items, std::string_view separator,
                                 TextOf&& text_of = {}) {
  std::ostringstream out;
  std::string_view before;
  for (const auto& item : items) out << std::exchange(before, separator) << text_of(item);
  return std::move(out).str();
}

/// Splits `text` at every separator. Empty parts are kept.
[[nodiscard]] inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace trireme
