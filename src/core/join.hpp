#pragma once
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace trireme {

/// `text_of(item)` of every item, streamed, with `separator` between two: "tp, cp, dp".
template <class Items, class TextOf = std::identity>
[[nodiscard]] std::string joined(const Items& items, std::string_view separator,
                                 TextOf&& text_of = {}) {
  std::ostringstream out;
  std::string_view before;
  for (const auto& item : items) out << std::exchange(before, separator) << text_of(item);
  return std::move(out).str();
}

}  // namespace trireme
