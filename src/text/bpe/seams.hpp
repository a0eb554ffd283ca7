#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/spec/tokenizer_spec.hpp"

namespace trireme {

/// Finds positions in a pre-token that no merge can cross. Both sides can be encoded separately and
/// found in the word cache. A Chinese clause is one pre-token and nearly always new, but most pairs
/// of neighbouring characters occur in no token.
///
/// The constructor stores, for each token that merges produce, the pairs of neighbouring characters
/// inside it, including incomplete characters at its ends. The pairs are in a bit filter: a false
/// hit only costs time. Immutable after construction and thread-safe.
class Seams {
 public:
  explicit Seams(const TokenizerSpec& spec);

  /// Returns the length of `piece` (valid UTF-8, not empty) up to its first safe split point.
  [[nodiscard]] std::size_t part_length(std::string_view piece) const noexcept;

 private:
  void add_token(std::string_view bytes);
  void set(std::string_view left, std::string_view right);
  [[nodiscard]] bool joined(const char* left, std::size_t left_size, const char* right,
                            std::size_t right_size) const noexcept;
  [[nodiscard]] std::uint64_t bit_of(std::uint64_t left, std::uint64_t right) const noexcept;

  std::vector<std::uint64_t> bits_;
  int shift_ = 0;
  // bit [left bytes][right bytes]: a stored pair has these lengths
  std::uint32_t shapes_ = 0;
};

}  // namespace trireme
