#include "text/unicode/nfc.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <tuple>
#include <vector>

#include "text/unicode/nfc_table.inc"
#include "text/unicode/nfkc_table.inc"
#include "text/unicode/unicode_class.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

// Hangul syllables are composed of lead, vowel and tail. These are the first code points of each.
constexpr std::uint32_t kSyllables = 0xAC00;
constexpr std::uint32_t kLeads = 0x1100;
constexpr std::uint32_t kVowels = 0x1161;
constexpr std::uint32_t kTails = 0x11A7;  // the first stands for "no tail"
constexpr std::uint32_t kNumLeads = 19;
constexpr std::uint32_t kNumVowels = 21;
constexpr std::uint32_t kNumTails = 28;
constexpr std::uint32_t kNumSyllables = kNumLeads * kNumVowels * kNumTails;

struct Char {
  std::uint32_t code_point;
  std::uint8_t order;  // order of its combining class; 0 for a starter
};

std::uint8_t order_of(std::uint32_t c) {
  const auto* const found =
      std::lower_bound(std::begin(unicode::kCombiningClasses), std::end(unicode::kCombiningClasses),
                       c, [](const unicode::CombiningClass& entry, std::uint32_t key) {
                         return entry.code_point < key;
                       });
  return found != std::end(unicode::kCombiningClasses) && found->code_point == c ? found->order : 0;
}

/// Returns the entry of a character; null if there is none.
const unicode::Decomposition* find_in(std::span<const unicode::Decomposition> table,
                                      std::uint32_t c) {
  const auto found = std::ranges::lower_bound(table, c, {}, &unicode::Decomposition::code_point);
  return found != table.end() && found->code_point == c ? &*found : nullptr;
}

void append_decomposed(std::uint32_t c, std::vector<Char>& out) {
  if (c - kSyllables < kNumSyllables) {
    const std::uint32_t index = c - kSyllables;
    out.push_back({kLeads + index / (kNumVowels * kNumTails), 0});
    out.push_back({kVowels + index / kNumTails % kNumVowels, 0});
    if (index % kNumTails != 0) out.push_back({kTails + index % kNumTails, 0});
    return;
  }
  const unicode::Decomposition* const found = find_in(unicode::kDecompositions, c);
  if (found == nullptr) {
    out.push_back({c, order_of(c)});
    return;
  }
  for (std::size_t i = 0; i < found->size; ++i) {
    const std::uint32_t part = unicode::kDecomposed[found->start + i];
    out.push_back({part, order_of(part)});
  }
}

/// Returns 0 if the characters do not compose.
std::uint32_t composed(std::uint32_t first, std::uint32_t second) {
  if (first - kLeads < kNumLeads && second - kVowels < kNumVowels)
    return kSyllables + ((first - kLeads) * kNumVowels + second - kVowels) * kNumTails;
  if (first - kSyllables < kNumSyllables && (first - kSyllables) % kNumTails == 0 &&
      second - kTails - 1 < kNumTails - 1)
    return first + second - kTails;
  const auto* const found = std::lower_bound(
      std::begin(unicode::kCompositions), std::end(unicode::kCompositions),
      std::tuple(first, second), [](const unicode::Composition& entry, const auto& key) {
        return std::tuple(entry.first, entry.second) < key;
      });
  const bool joins =
      found != std::end(unicode::kCompositions) && found->first == first && found->second == second;
  return joins ? found->result : 0;
}

/// Composes each starter with the following characters unless a mark between them blocks the
/// composition.
void compose(std::vector<Char>& chars) {
  std::size_t kept = 0;
  std::size_t starter = 0;
  bool have_starter = false;
  for (const Char& next : chars) {
    // A mark in between blocks the composition if its class is not lower than the class of `next`.
    const bool adjacent = have_starter && kept == starter + 1;
    const bool free = adjacent || (kept > 0 && chars[kept - 1].order < next.order);
    const std::uint32_t joined =
        have_starter && free ? composed(chars[starter].code_point, next.code_point) : 0;
    if (joined != 0) {
      chars[starter].code_point = joined;
      continue;
    }
    if (next.order == 0) {
      starter = kept;
      have_starter = true;
    }
    chars[kept++] = next;
  }
  chars.resize(kept);
}

/// Replaces `chars` by the decomposed characters of `text`.
void decompose(std::string_view text, std::vector<Char>& chars) {
  chars.clear();
  for (std::size_t at = 0, length = 0; at < text.size(); at += length)
    append_decomposed(utf8_decode(text.data() + at, length), chars);
  for (auto at = chars.begin(); at != chars.end();) {  // sort the marks of a starter by class
    const auto marks = std::find_if(at, chars.end(), [](const Char& c) { return c.order != 0; });
    at = std::find_if(marks, chars.end(), [](const Char& c) { return c.order == 0; });
    std::stable_sort(marks, at, [](const Char& a, const Char& b) { return a.order < b.order; });
  }
}

void append_nfc(std::string_view text, std::vector<Char>& chars, std::string& out) {
  decompose(text, chars);
  compose(chars);
  for (const Char& c : chars) append_utf8(c.code_point, out);
}

/// Returns `text` with its characters replaced that have a compatible form.
std::string compatible(std::string_view text) {
  std::string replaced;
  replaced.reserve(text.size());
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    const std::uint32_t c = utf8_decode(text.data() + at, length);
    const unicode::Decomposition* const found =
        c < 0x80 ? nullptr : find_in(unicode::kCompatible, c);
    if (found == nullptr) {
      replaced.append(text.substr(at, length));
      continue;
    }
    for (std::size_t i = 0; i < found->size; ++i)
      append_utf8(unicode::kCompatibleParts[found->start + i], replaced);
  }
  return replaced;
}

/// Returns the start of the first active character at or after `at`. Sets `before` to the start of
/// the character before it, if there is one after `at`.
std::size_t next_active(std::string_view text, std::size_t at, std::size_t& before) noexcept {
  for (std::size_t length = 0; at < text.size(); at += length) {
    if ((char_class(utf8_decode(text.data() + at, length)) & kNfcActive) != 0) return at;
    before = at;
  }
  return text.size();
}

}  // namespace

bool surely_nfc(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    constexpr std::uint64_t kHighBits = 0x8080808080808080;
    std::uint64_t word = 0;
    if (text.size() - at >= sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & kHighBits) == 0) {
        at += sizeof word;
        continue;
      }
    }
    std::size_t length = 0;
    if ((char_class(utf8_decode(text.data() + at, length)) & kNfcActive) != 0) return false;
    at += length;
  }
  return true;
}

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<Char> chars;
  for (std::size_t at = 0; at < text.size();) {
    // Only the text from the last character before an active one to the first inactive one after it
    // can change.
    std::size_t first = at;
    const std::size_t active = next_active(text, at, first);
    if (active == text.size()) {
      out.append(text.substr(at));
      break;
    }
    out.append(text.substr(at, first - at));
    std::size_t stop = active;
    for (std::size_t length = 0; stop < text.size(); stop += length) {
      if ((char_class(utf8_decode(text.data() + stop, length)) & kNfcActive) == 0) break;
    }
    append_nfc(text.substr(first, stop - first), chars, out);
    at = stop;
  }
  return out;
}

std::string to_nfkc(std::string_view text) {
  const std::string replaced = compatible(text);
  return surely_nfc(replaced) ? replaced : to_nfc(replaced);
}

std::string to_nfd(std::string_view text) {
  std::vector<Char> chars;
  decompose(text, chars);
  std::string out;
  out.reserve(text.size());
  for (const Char& c : chars) append_utf8(c.code_point, out);
  return out;
}

std::string to_nfkd(std::string_view text) {
  return to_nfd(compatible(text));
}

}  // namespace trireme::text
