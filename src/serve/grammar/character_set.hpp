#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "serve/grammar/byte_grammar.hpp"

namespace trireme::serve {

inline constexpr std::uint32_t kLastCharacter = 0x10FFFF;

/// A set of Unicode characters without surrogates.
class CharacterSet {
 public:
  /// Adds the characters `from` to `to`.
  CharacterSet& add(std::uint32_t from, std::uint32_t to);
  CharacterSet& add(const CharacterSet& other);

  /// Returns all characters that are not in this set.
  [[nodiscard]] CharacterSet complement() const;

  /// Returns the sorted ranges of the set, which do not touch each other.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges() const;

 private:
  std::vector<std::pair<std::uint32_t, std::uint32_t>> added_;
};

/// Returns one character of `set` inside a JSON string. Quotes, backslashes and control characters
/// are escaped, and all other characters are UTF-8. Throws Error(usage) if the set is empty.
GrammarSequence json_character_of(ByteGrammar& grammar, const CharacterSet& set);

}  // namespace trireme::serve
