#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/order/order.hpp"
#include "data/sequences/split.hpp"
#include "data/shards/token_set.hpp"

namespace trireme::data {

/// The prompts of a token set of kind "rl" in an order that is a function of (seed, index).
///
/// Memory: one integer per shard. Each epoch has another order (SampleOrder). Thread-safe.
class RlPrompts {
 public:
  struct Prompt {
    std::vector<std::uint32_t> ids;  // with the header of the answer
    std::string record;              // JSON object: messages, tools and other fields
    std::uint64_t document = 0;      // position in the set
  };

  /// The set must outlive this object. Throws Error(usage) if it has another kind, and Error(data)
  /// if it has no prompt.
  RlPrompts(const TokenSet& set, std::uint64_t seed, bool shuffle);

  /// Returns the number of prompts in an epoch.
  [[nodiscard]] std::uint64_t size() const { return order_.num_samples(); }

  /// Returns prompt `index`. An index of size() or more belongs to a later epoch. Throws
  /// Error(data) if the shard is damaged.
  [[nodiscard]] Prompt at(std::uint64_t index) const;

 private:
  const TokenSet& set_;
  SampleOrder order_;
  std::vector<std::uint64_t> ends_;  // documents up to the end of each shard
};

/// Prompts that have more tokens than a limit.
struct LongPrompts {
  std::uint64_t count = 0;
  std::uint64_t longest = 0;  // position in the set
  std::uint64_t longest_tokens = 0;
};

/// Finds the prompts of a range that have more than `limit` tokens. Reads only the document tables.
/// Throws Error(data) if a table is invalid.
LongPrompts long_prompts(const TokenSet& set, DocumentRange range, std::int64_t limit);

}  // namespace trireme::data
