#pragma once
#include <algorithm>
#include <cstdint>

#include "ops/key_interval.hpp"

namespace trireme::ops {

/// The keys that a query sees because of its position. Every attention implementation, the cost
/// formulas and generation read positions_seen(), so a new kind of mask is a member of this struct
/// and its case in positions_seen(). Compared by value: layers with equal masks share their plans.
struct AttentionMask {
  bool causal = true;       // a query sees no key after its own position
  std::int64_t window = 0;  // a query sees only keys closer than window; 0: no limit

  bool operator==(const AttentionMask&) const = default;

  [[nodiscard]] bool is_valid() const { return window >= 0; }

  /// Returns true if the mask is causal or absent, which every library understands.
  [[nodiscard]] bool is_simple() const { return *this == AttentionMask{.causal = causal}; }

  /// Returns false if every query sees every key.
  [[nodiscard]] bool hides_keys() const { return *this != AttentionMask{.causal = false}; }

  /// Returns the positions that a query sees in a document without boundaries. From one position to
  /// the next, each end grows by one or is beyond all keys.
  [[nodiscard]] KeyInterval positions_seen(std::int64_t position) const {
    constexpr std::int64_t kFar = std::int64_t{1} << 60;  // beyond every boundary
    const std::int64_t begin = window > 0 ? position + 1 - window : -kFar;
    const std::int64_t end = window > 0 ? position + window : kFar;
    return {begin, causal ? position + 1 : end};
  }

  /// Returns the number of keys that the last query of a row sees. Cost formulas use it for all.
  [[nodiscard]] std::int64_t keys_of_last_query(std::int64_t length) const {
    const KeyInterval seen = positions_seen(length - 1);
    return std::min(seen.end, length) - std::max<std::int64_t>(seen.begin, 0);
  }
};

}  // namespace trireme::ops
