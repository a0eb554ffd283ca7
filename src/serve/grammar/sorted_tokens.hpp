#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace trireme {

/// The tokens of a vocabulary in the order of their bytes, so that all with the same beginning are
/// looked at once. Made once for a tokenizer; immutable.
///   memory  32 bytes a token
class SortedTokens {
 public:
  struct Row {
    std::string_view bytes;
    std::uint32_t id = 0;
    std::uint32_t shared = 0;  // bytes that it begins with like the row before
  };

  /// `markers`: added tokens that count as the text that they are ("<tool_call>"). All others, and ids
  /// of `vocab_size` and above, are in no row.
  SortedTokens(const Tokenizer& tokenizer, std::span<const std::string_view> markers,
               std::int64_t vocab_size);

  [[nodiscard]] const std::vector<Row>& rows() const noexcept { return rows_; }

  [[nodiscard]] std::string_view bytes_of(std::uint32_t id) const {
    return tokenizer_.token_bytes(id);
  }

 private:
  Tokenizer tokenizer_;  // whose bytes the rows show
  std::vector<Row> rows_;
};

}  // namespace trireme
