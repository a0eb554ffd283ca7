#pragma once
#include <cstdint>
#include <optional>

#include "data/sequences/split.hpp"
#include "data/shards/token_set.hpp"

namespace trireme {

/// The conversations or preference pairs that a training at a shorter length than the packed one
/// loses. `pack` at that length reports the same numbers.
struct LengthLoss {
  std::uint64_t documents = 0;    // all, with those that `pack` dropped
  std::uint64_t dropped = 0;      // without a target at this length, or too long for the rule
  std::uint64_t truncated = 0;    // cut, and still trained on
  std::uint64_t cut_prompts = 0;  // of them pairs that lost the beginning of their prompt
  std::uint64_t cut_answers = 0;  // of them pairs of which a side lost its end
  std::uint64_t targets = 0;      // at the packed length
  std::uint64_t lost_targets = 0;

  [[nodiscard]] bool any() const { return dropped != 0 || truncated != 0; }
};

/// Counts the loss of `range` of the set's documents at `seq_len`. If the range is the whole set,
/// `dropped` has also what `pack` dropped for its length. None for texts (kind pretrain: longer
/// documents are cut into pieces and keep all tokens) and for a length that is not shorter than
/// the packed one. Reads the tables of targets, no token. Throws as TokenSet.
std::optional<LengthLoss> length_loss(const TokenSet& set, std::int64_t seq_len,
                                      const DocumentRange& range);

}  // namespace trireme
