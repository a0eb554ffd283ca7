#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/spec/tokenizer_spec.hpp"

namespace trireme {

/// Places in a piece that no merge can cross, so that both sides are encoded apart, and found in
/// the word cache. A Chinese clause is one piece, nearly always new, but most of its neighbouring
/// characters stand together in no token.
///
/// Built from the tokens that merges make: wherever a character ends inside such a token, the pair
/// of its last character and the next is kept, also where the token holds only some bytes of one.
/// The pairs are in a bit filter: a false hit costs time, a miss is certain. Immutable after
/// construction; safe for any number of threads.
class Seams {
 public:
  explicit Seams(const TokenizerSpec& spec);

  /// Length of the part of `piece` (valid UTF-8, not empty) before its first seam.
  [[nodiscard]] std::size_t part_length(std::string_view piece) const noexcept;

 private:
  void add_token(std::string_view bytes);
  void set(std::string_view left, std::string_view right);
  [[nodiscard]] bool joined(const char* left, std::size_t left_size, const char* right,
                            std::size_t right_size) const noexcept;
  [[nodiscard]] std::uint64_t bit_of(std::uint64_t left, std::uint64_t right) const noexcept;

  std::vector<std::uint64_t> bits_;
  int shift_ = 0;
  // [left bytes][right bytes]: some token holds so many of a pair, or more than the character has
  std::uint32_t shapes_ = 0;
};

}  // namespace trireme
