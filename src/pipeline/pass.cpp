#include "pipeline/pass.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "core/error.hpp"

namespace trireme::pipeline {
namespace {

constexpr std::array<std::string_view, 4> kLetters{"F", "BW", "B", "W"};  // indexed by PassKind

/// Parses all of `text` as an unsigned integer.
std::optional<int> count_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.starts_with('-'))
    return std::nullopt;
  return value;
}

}  // namespace

std::string text_of(const Pass& pass) {
  return formatted("{}{}.{}", kLetters[static_cast<std::size_t>(pass.kind)], pass.stage,
                   pass.micro_batch);
}

std::optional<Pass> parse_pass(std::string_view text) {
  const auto digit =
      std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  const auto letters = text.substr(0, static_cast<std::size_t>(digit - text.begin()));
  const auto* const kind = std::find(kLetters.begin(), kLetters.end(), letters);
  const std::string_view numbers = text.substr(letters.size());
  const std::size_t point = numbers.find('.');
  if (kind == kLetters.end() || point == std::string_view::npos) return std::nullopt;
  const auto stage = count_of(numbers.substr(0, point));
  const auto micro_batch = count_of(numbers.substr(point + 1));
  if (!stage || !micro_batch) return std::nullopt;
  return Pass{static_cast<PassKind>(kind - kLetters.begin()), *stage, *micro_batch};
}

}  // namespace trireme::pipeline
