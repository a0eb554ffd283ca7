#include "reward/python_text.hpp"

#include <algorithm>
#include <array>

#include "core/number.hpp"
#include "text/unicode/unicode_class.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::reward {
namespace {

struct CaseRange {
  std::uint32_t first;
  std::uint32_t last;
  std::int32_t distance;
  std::uint32_t step;
};

constexpr CaseRange kLower[] = {
#include "reward/lower_case.inc"
};

/// One character of a text. A byte that is not UTF-8 is U+FFFD.
struct Character {
  std::uint32_t code = 0;
  std::size_t length = 0;
};

Character character_at(std::string_view text, std::size_t at) {
  constexpr std::uint32_t kReplacement = 0xFFFD;
  if (!text::utf8_step(text, at).valid) return {kReplacement, 1};
  Character one;
  one.code = text::utf8_decode(text.data() + at, one.length);
  return one;
}

bool is_space(std::uint32_t code) {
  // Python also counts the four separators of ASCII.
  return (code >= 0x1C && code <= 0x1F) || (text::char_class(code) & text::kSpace) != 0;
}

bool is_word(std::uint32_t code) {
  return code == '_' || (text::char_class(code) & (text::kLetter | text::kNumber)) != 0;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Returns true if the character that ends before `at` is a word character or ".".
bool touches_before(std::string_view text, std::size_t at) {
  if (at == 0) return false;
  std::size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && !text::begins_character(text[begin])) --begin;
  return text[at - 1] == '.' || is_word(character_at(text, begin).code);
}

bool touches_after(std::string_view text, std::size_t at) {
  return at < text.size() && (text[at] == '.' || is_word(character_at(text, at).code));
}

std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

void append_utf8(std::uint32_t code, std::string& out) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

std::uint32_t lower_code(std::uint32_t code) {
  const auto* found = std::lower_bound(
      std::begin(kLower), std::end(kLower), code,
      [](const CaseRange& range, std::uint32_t value) { return range.last < value; });
  if (found == std::end(kLower) || code < found->first || (code - found->first) % found->step != 0)
    return code;
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(code) + found->distance);
}

}  // namespace

std::string_view stripped(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const Character one = character_at(text, begin);
    if (!is_space(one.code)) break;
    begin += one.length;
  }
  std::size_t end = begin;  // after the last character that is not white space
  for (std::size_t at = begin; at < text.size();) {
    const Character one = character_at(text, at);
    at += one.length;
    if (!is_space(one.code)) end = at;
  }
  return text.substr(begin, end - begin);
}

std::size_t num_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) at += character_at(text, at).length;
  return count;
}

std::string lower(std::string_view text) {
  constexpr std::uint32_t kCapitalIWithDot = 0x130;  // becomes two characters
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character one = character_at(text, at);
    const bool is_valid = one.length > 1 || static_cast<unsigned char>(text[at]) < 0x80;
    if (!is_valid) {
      result += text[at];
    } else if (one.code == kCapitalIWithDot) {
      result += "i\xCC\x87";
    } else {
      append_utf8(lower_code(one.code), result);
    }
    at += one.length;
  }
  return result;
}

std::vector<std::string_view> words_and_signs(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const Character first = character_at(text, at);
    at += first.length;
    if (is_word(first.code)) {
      while (at < text.size()) {
        const Character next = character_at(text, at);
        if (!is_word(next.code)) break;
        at += next.length;
      }
    } else if (is_space(first.code)) {
      continue;
    }
    parts.push_back(text.substr(begin, at - begin));
  }
  return parts;
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size()))
    ++count;
  return count;
}

std::vector<double> numbers_in(std::string_view text) {
  std::vector<double> numbers;
  for (std::size_t at = 0; at < text.size();) {
    const bool has_sign = text[at] == '-' || text[at] == '+';
    const std::size_t first = at + (has_sign ? 1 : 0);
    std::size_t end = digits_end(text, first);
    if (end == first || touches_before(text, at)) {
      ++at;
      continue;
    }
    const std::size_t fraction =
        end < text.size() && text[end] == '.' ? digits_end(text, end + 1) : 0;
    if (fraction > end + 1) end = fraction;
    // A shorter match would end before a digit or a point, so only the longest one counts.
    if (!touches_after(text, end))
      if (const auto value = parse_number(text.substr(at, end - at))) numbers.push_back(*value);
    at = end;
  }
  return numbers;
}

}  // namespace trireme::reward
