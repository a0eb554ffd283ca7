#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/spec/tokenizer_spec.hpp"

namespace trireme {

/// The bytes of every id, in one piece of memory.
struct TokenTable {
  std::string bytes;
  std::vector<std::uint32_t> start;  // [vocab_size + 1]
  std::vector<bool> special;

  explicit TokenTable(const TokenizerSpec& spec);

  [[nodiscard]] std::string_view at(std::uint32_t id) const {
    if (id + std::size_t{1} >= start.size()) return {};
    return std::string_view(bytes).substr(start[id], start[id + 1] - start[id]);
  }
};

/// XXH3-128 (32 hex digits) of what decides the ids, in a canonical form.
std::string content_hash(const TokenizerSpec& spec);

}  // namespace trireme
