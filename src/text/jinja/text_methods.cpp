#include "text/jinja/text_methods.hpp"

#include <algorithm>
#include <cctype>

#include "text/unicode/unicode_class.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text::jinja {
namespace {

/// Returns true if str.isspace() is true for the character at `at`.
bool is_space_at(const std::string& bytes, std::size_t at, std::size_t& length) {
  const std::uint32_t c = utf8_decode(bytes.data() + at, length);
  return (char_class(c) & kSpace) != 0 || (c >= 0x1C && c <= 0x1F);
}

/// The filter `title` of Jinja2 begins a word after white space and these characters.
constexpr std::string_view kBeforeWord = "-({[<";

/// Returns true for characters outside of ASCII that have upper or lower case.
bool has_case(std::uint32_t c) {
  const std::uint8_t bits = char_class(c);
  const bool is_cased_letter = ((bits & kCapital) != 0) != ((bits & kSmall) != 0);
  const bool is_other = c == 0x345 || (c >= 0x2160 && c <= 0x217F) || (c >= 0x24B6 && c <= 0x24E9);
  return is_cased_letter || is_other;
}

}  // namespace

JinjaList text_lines(const MarkedText& text) {
  JinjaList lines;
  std::size_t begin = 0;
  std::size_t length = 0;
  for (std::size_t at = 0; at < text.size(); at += length) {
    const std::uint32_t c = utf8_decode(text.bytes().data() + at, length);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    lines.emplace_back(text.part(begin, at));
    if (c == '\r' && at + 1 < text.size() && text.bytes()[at + 1] == '\n') ++length;
    begin = at + length;
  }
  if (begin < text.size()) lines.emplace_back(text.part(begin, text.size()));
  return lines;
}

MarkedText text_stripped(const MarkedText& text, bool left, bool right) {
  const std::string& bytes = text.bytes();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  std::size_t length = 0;
  while (left && begin < end && is_space_at(bytes, begin, length)) begin += length;
  while (right && begin < end) {
    const std::size_t last = utf8_last_start(std::string_view(bytes).substr(0, end));
    if (!is_space_at(bytes, last, length)) break;
    end = last;
  }
  return text.part(begin, end);
}

JinjaList text_words(const MarkedText& text) {
  JinjaList words;
  std::size_t begin = 0;
  std::size_t length = 0;
  for (std::size_t at = 0; at < text.size(); at += length) {
    if (!is_space_at(text.bytes(), at, length)) continue;
    if (begin < at) words.emplace_back(text.part(begin, at));
    begin = at + length;
  }
  if (begin < text.size()) words.emplace_back(text.part(begin, text.size()));
  return words;
}

JinjaList text_split(const MarkedText& text, std::string_view separator, std::int64_t limit,
                     bool from_right) {
  if (separator.empty()) jinja_fail("the separator is empty");
  const std::string& bytes = text.bytes();
  JinjaList parts;
  if (!from_right) {
    std::size_t begin = 0;
    for (std::size_t at = 0; limit != 0 && (at = bytes.find(separator, begin)) != std::string::npos;
         --limit) {
      parts.emplace_back(text.part(begin, at));
      begin = at + separator.size();
    }
    parts.emplace_back(text.part(begin, text.size()));
    return parts;
  }
  std::size_t end = text.size();
  for (; limit != 0 && end >= separator.size(); --limit) {
    const std::size_t at = bytes.rfind(separator, end - separator.size());
    if (at == std::string::npos) break;
    parts.emplace_back(text.part(at + separator.size(), end));
    end = at;
  }
  parts.emplace_back(text.part(0, end));
  std::ranges::reverse(parts);
  return parts;
}

MarkedText text_replaced(const MarkedText& text, std::string_view from, const MarkedText& to,
                         std::int64_t limit) {
  if (from.empty()) jinja_fail("replace() of an empty text is not supported");
  MarkedText result;
  std::size_t begin = 0;
  for (std::size_t at = 0; limit != 0 && (at = text.bytes().find(from, begin)) != std::string::npos;
       --limit) {
    result.append(text.part(begin, at)).append(to);
    begin = at + from.size();
  }
  return result.append(text.part(begin, text.size()));
}

MarkedText text_joined(const JinjaList& items, const MarkedText& separator) {
  MarkedText result;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) result.append(separator);
    result.append(items[i].str());
  }
  return result;
}

std::int64_t text_position(const MarkedText& text, std::string_view part, bool from_right) {
  const std::size_t at = from_right ? text.bytes().rfind(part) : text.bytes().find(part);
  if (at == std::string::npos) return -1;
  return static_cast<std::int64_t>(utf8_length(std::string_view(text.bytes()).substr(0, at)));
}

MarkedText text_recased(const MarkedText& text, LetterCase letters) {
  const bool by_words = letters == LetterCase::words;
  std::string bytes = text.bytes();
  bool begins_word = true;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto c = static_cast<unsigned char>(bytes[i]);
    std::size_t length = 0;
    if (begins_character(bytes[i]) && c > 127 && has_case(utf8_decode(bytes.data() + i, length)))
      jinja_fail("the case of letters outside of ASCII cannot be changed");
    const bool upper = letters == LetterCase::upper ||
                       ((letters == LetterCase::title || by_words) && begins_word) ||
                       (letters == LetterCase::capitalized && i == 0);
    bytes[i] = static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
    if (!by_words) {
      begins_word = std::isalpha(c) == 0;
    } else if (begins_character(bytes[i])) {
      begins_word =
          kBeforeWord.find(bytes[i]) != std::string_view::npos || is_space_at(bytes, i, length);
    }
  }
  return text.with_bytes(std::move(bytes));
}

}  // namespace trireme::text::jinja
