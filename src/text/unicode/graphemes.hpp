#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme::text {

/// Returns the number of bytes of the first extended grapheme cluster of `text` (valid UTF-8, not
/// empty), as in Hugging Face `tokenizers`. Exception: two regional indicators are two clusters.
/// The only user treats clusters of six bytes or more character by character, so the result for its
/// texts is the same. Source: Unicode Standard Annex #29, section 3.1.1.
std::size_t grapheme_length(std::string_view text) noexcept;

namespace unicode {

/// Code points with the same properties, which are bits.
struct GraphemeRange {
  std::uint32_t first;
  std::uint32_t last;
  std::uint8_t flags;
};

extern const GraphemeRange kGraphemeRanges[];
extern const std::size_t kNumGraphemeRanges;

}  // namespace unicode
}  // namespace trireme::text
