#include "text/unicode/graphemes.hpp"

#include <algorithm>

#include "text/unicode/utf8.hpp"

// The generated properties.
#include "text/unicode/grapheme_table.inc"

namespace trireme::text {
namespace {

constexpr std::uint8_t kControl = 1;       // ends the cluster before it and after it
constexpr std::uint8_t kJoins = 2;         // Extend, SpacingMark or ZWJ
constexpr std::uint8_t kPrepend = 4;       // joins the character after it
constexpr std::uint8_t kPictographic = 8;  // Extended_Pictographic
constexpr std::uint8_t kConsonant = 16;    // Indic_Conjunct_Break=Consonant
constexpr std::uint8_t kLinker = 32;       // Indic_Conjunct_Break=Linker
constexpr std::uint8_t kBetween = 64;      // may stand between a consonant and its linker
constexpr std::uint32_t kJoiner = 0x200D;

std::uint8_t flags_of(std::uint32_t c) {
  using unicode::GraphemeRange;
  const GraphemeRange* const end = unicode::kGraphemeRanges + unicode::kNumGraphemeRanges;
  const GraphemeRange* const found =
      std::lower_bound(unicode::kGraphemeRanges, end, c,
                       [](const GraphemeRange& range, std::uint32_t x) { return range.last < x; });
  return found != end && found->first <= c ? found->flags : std::uint8_t{0};
}

enum class Hangul : std::uint8_t { none, lead, vowel, tail, lead_vowel, lead_vowel_tail };

Hangul hangul_of(std::uint32_t c) {
  const auto within = [c](std::uint32_t first, std::uint32_t last) {
    return c >= first && c <= last;
  };
  if (within(0x1100, 0x115F) || within(0xA960, 0xA97C)) return Hangul::lead;
  if (within(0x1160, 0x11A7) || within(0xD7B0, 0xD7C6)) return Hangul::vowel;
  if (within(0x11A8, 0x11FF) || within(0xD7CB, 0xD7FB)) return Hangul::tail;
  if (!within(0xAC00, 0xD7A3)) return Hangul::none;
  return (c - 0xAC00) % 28 == 0 ? Hangul::lead_vowel : Hangul::lead_vowel_tail;
}

bool hangul_joins(Hangul left, Hangul right) {
  using enum Hangul;
  if (left == lead) return right != none && right != tail;
  const bool takes_tail = left != none && right == tail;
  return takes_tail || ((left == vowel || left == lead_vowel) && right == vowel);
}

/// The characters of a cluster so far, as far as they decide whether the next one joins it.
class Cluster {
 public:
  explicit Cluster(std::uint32_t c) { add(c, flags_of(c)); }

  /// Adds a character if it belongs to the cluster.
  bool take(std::uint32_t c) {
    const std::uint8_t flags = flags_of(c);
    if (!joins(c, flags)) return false;
    add(c, flags);
    return true;
  }

 private:
  [[nodiscard]] bool joins(std::uint32_t c, std::uint8_t flags) const {
    if (last_ == '\r' && c == '\n') return true;
    if (((last_flags_ | flags) & kControl) != 0) return false;
    if (hangul_joins(hangul_of(last_), hangul_of(c))) return true;
    if ((flags & kJoins) != 0 || (last_flags_ & kPrepend) != 0) return true;
    if (linked_ && (flags & kConsonant) != 0) return true;
    return last_ == kJoiner && pictographic_ && (flags & kPictographic) != 0;
  }

  void add(std::uint32_t c, std::uint8_t flags) {
    if ((flags & kConsonant) != 0) {
      consonant_ = true;
      linked_ = false;
    } else if ((flags & kBetween) == 0) {
      consonant_ = false;
      linked_ = false;
    } else if ((flags & kLinker) != 0) {
      linked_ = consonant_;
    }
    if ((flags & kPictographic) != 0) {
      pictographic_ = true;
    } else if ((flags & kBetween) == 0 || last_ == kJoiner) {
      pictographic_ = false;
    }
    last_ = c;
    last_flags_ = flags;
  }

  std::uint32_t last_ = 0;
  std::uint8_t last_flags_ = 0;
  bool consonant_ = false;     // consonant, then marks
  bool linked_ = false;        // consonant, then marks with a linker
  bool pictographic_ = false;  // pictographic character, then marks
};

}  // namespace

std::size_t grapheme_length(std::string_view text) noexcept {
  std::size_t end = 0;
  Cluster cluster(utf8_decode(text.data(), end));
  std::size_t length = 0;
  while (end < text.size() && cluster.take(utf8_decode(text.data() + end, length))) end += length;
  return end;
}

}  // namespace trireme::text
