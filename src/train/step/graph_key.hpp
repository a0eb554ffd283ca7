#pragma once
#include <compare>
#include <cstdint>

#include "parallel/microbatch.hpp"

namespace trireme::train {

/// The properties of a micro-batch that a graph depends on.
struct PassesKey {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::int64_t documents = 0;  // a power of two; 0: every row is one document
  std::int64_t longest = 0;    // tokens of the longest document: a power of two, at most the length
  std::int64_t window = 0;     // largest window in training (train.window_schedule)
  bool has_weights = false;    // targets have weights

  auto operator<=>(const PassesKey&) const = default;
};

/// Returns the key of a micro-batch, with its numbers rounded up. `window`: see PassesKey.
PassesKey passes_key(const parallel::Microbatch& batch, std::int64_t window);

}  // namespace trireme::train
