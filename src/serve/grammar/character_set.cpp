#include "serve/grammar/character_set.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::serve {
namespace {

constexpr std::uint32_t kFirstSurrogate = 0xD800;
constexpr std::uint32_t kLastSurrogate = 0xDFFF;
constexpr std::uint32_t kFirstPrintable = 0x20;

/// Appends the byte sequences of the characters in [from, to] to `forms`. All characters of a
/// sequence of byte ranges have the same length, and each of its bytes takes all values of its
/// range. Source: the method of RE2's `Compiler::AddRuneRangeUTF8`.
void add_utf8(ByteGrammar& grammar, std::uint32_t from, std::uint32_t to,
              std::vector<GrammarSequence>& forms) {
  for (const std::uint32_t last : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (from > last || to <= last) continue;
    add_utf8(grammar, from, last, forms);
    return add_utf8(grammar, last + 1, to, forms);
  }
  for (int bits = 6; to > 0x7F && bits <= 18; bits += 6) {
    const std::uint32_t low = (1U << bits) - 1;
    if ((from & ~low) == (to & ~low)) continue;
    if ((from & low) != 0) {
      add_utf8(grammar, from, from | low, forms);
      return add_utf8(grammar, (from | low) + 1, to, forms);
    }
    if ((to & low) != low) {
      add_utf8(grammar, from, (to & ~low) - 1, forms);
      return add_utf8(grammar, to & ~low, to, forms);
    }
  }
  std::string first;
  std::string last;
  text::append_utf8(from, first);
  text::append_utf8(to, last);
  GrammarSequence form;
  for (std::size_t i = 0; i < first.size(); ++i)
    form = std::move(form) + grammar.bytes(ByteSet().add(static_cast<unsigned char>(first[i]),
                                                         static_cast<unsigned char>(last[i])));
  forms.push_back(std::move(form));
}

/// Returns the escape sequence of a character that JSON strings cannot hold; "" for others.
std::string escape_of(std::uint32_t character) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  constexpr std::string_view kHex = "0123456789abcdef";
  if (character <= 0x7F) {
    const std::size_t found = kShort.find(static_cast<char>(character));
    if (found != std::string_view::npos) return std::string("\\") + kLetters[found];
  }
  if (character >= kFirstPrintable) return "";
  return std::string("\\u00") + kHex[character >> 4U] + kHex[character & 0xFU];
}

}  // namespace

CharacterSet& CharacterSet::add(std::uint32_t from, std::uint32_t to) {
  added_.emplace_back(from, std::min(to, kLastCharacter));
  return *this;
}

CharacterSet& CharacterSet::add(const CharacterSet& other) {
  added_.insert(added_.end(), other.added_.begin(), other.added_.end());
  return *this;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> CharacterSet::ranges() const {
  auto sorted = added_;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> joined;
  for (const auto& [from, to] : sorted) {
    if (!joined.empty() && from <= joined.back().second + 1)
      joined.back().second = std::max(joined.back().second, to);
    else
      joined.emplace_back(from, to);
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> result;
  for (const auto& [from, to] : joined) {
    if (from < kFirstSurrogate) result.emplace_back(from, std::min(to, kFirstSurrogate - 1));
    if (to > kLastSurrogate) result.emplace_back(std::max(from, kLastSurrogate + 1), to);
  }
  return result;
}

CharacterSet CharacterSet::complement() const {
  CharacterSet result;
  std::uint32_t next = 0;
  for (const auto& [from, to] : ranges()) {
    if (next < from) result.add(next, from - 1);
    next = to + 1;
  }
  if (next <= kLastCharacter) result.add(next, kLastCharacter);
  return result;
}

GrammarSequence json_character_of(ByteGrammar& grammar, const CharacterSet& set) {
  std::vector<GrammarSequence> forms;
  ByteSet ascii;
  bool has_ascii = false;
  for (const auto& [from, to] : set.ranges()) {
    for (std::uint32_t character = from; character <= std::min(to, 0x7FU); ++character) {
      if (const std::string escape = escape_of(character); !escape.empty()) {
        forms.push_back(grammar.literal(escape));
      } else {
        ascii.add(static_cast<unsigned char>(character), static_cast<unsigned char>(character));
        has_ascii = true;
      }
    }
    if (to > 0x7F) add_utf8(grammar, std::max(from, 0x80U), to, forms);
  }
  if (has_ascii) forms.push_back(grammar.bytes(ascii));
  if (forms.empty()) fail(ErrorKind::usage, "A set of characters is empty.");
  return forms.size() == 1 && forms.front().size() == 1 ? forms.front() : grammar.choice(forms);
}

}  // namespace trireme::serve
