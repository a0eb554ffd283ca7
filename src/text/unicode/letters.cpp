#include "text/unicode/letters.hpp"

#include <algorithm>
#include <iterator>

#include "text/unicode/letter_table.inc"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

bool is_accent(std::uint32_t c) {
  const auto* const after =
      std::ranges::upper_bound(unicode::kAccents, c, {}, &unicode::AccentRange::first);
  return after != std::begin(unicode::kAccents) && c <= std::prev(after)->last;
}

}  // namespace

std::string lowercased(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    const std::uint32_t c = utf8_decode(text.data() + at, length);
    const auto* const found =
        std::ranges::lower_bound(unicode::kLowered, c, {}, &unicode::Lowered::code_point);
    if (found == std::end(unicode::kLowered) || found->code_point != c) {
      result.append(text.substr(at, length));
      continue;
    }
    for (std::size_t i = 0; i < found->size; ++i)
      append_utf8(unicode::kLoweredParts[found->start + i], result);
  }
  return result;
}

std::string without_accents(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    if (!is_accent(utf8_decode(text.data() + at, length))) result.append(text.substr(at, length));
  }
  return result;
}

}  // namespace trireme::text
