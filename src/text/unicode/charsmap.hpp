#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

/// The normalization rules of a SentencePiece model ("precompiled_charsmap"): characters and their
/// replacements. Immutable and thread-safe.
///
/// `tokenizers` looks up a grapheme cluster below six bytes as a whole and larger clusters character
/// by character. The shortest key that begins the looked-up text replaces all of it. So a
/// replacement of the first character drops the marks after it, as in the library.
/// Source: huggingface/tokenizers 0.23, `normalizers/precompiled.rs`; crate spm_precompiled 0.1.4.
///
/// Form: the number of bytes of a trie (uint32), the trie, and the replacements, each ended by a
/// zero byte. All integers are little-endian. The trie is the double array of darts-clone 0.32:
/// units of 32 bits, with the offset to the children, a bit for a value, and a label.
class Charsmap {
 public:
  /// Checks all keys and replacements. Throws Error(data), with `where`, if the bytes are damaged.
  Charsmap(std::string_view bytes, const std::string& where);

  /// Returns `text` (valid UTF-8) with all replacements.
  [[nodiscard]] std::string apply(std::string_view text) const;

  /// Returns the bytes that the constructor read.
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  [[nodiscard]] std::optional<std::string_view> replacement(std::string_view text) const;
  void check(const std::string& where) const;
  /// Returns the child of the node at `position` by `label`; none if there is no such child.
  [[nodiscard]] std::optional<std::uint32_t> child(std::uint32_t position,
                                                   unsigned char label) const;

  std::string bytes_;
  std::string replacements_;
  std::vector<std::uint32_t> units_;
  std::array<bool, 128> keeps_ascii_{};  // the character alone stays
};

/// Decodes base64 with padding (RFC 4648, section 4). Returns none for other text.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace trireme::text
