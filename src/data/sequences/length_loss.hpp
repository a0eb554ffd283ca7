#pragma once
#include <cstdint>
#include <optional>

#include "data/sequences/split.hpp"
#include "data/shards/token_set.hpp"

namespace trireme::data {

/// The data that conversations or preference pairs lose if a run trains at a length below the
/// packed length. `pack` at that length reports the same numbers.
struct LengthTruncation {
  std::uint64_t documents = 0;    // all documents, including those that `pack` dropped
  std::uint64_t dropped = 0;      // no target at this length, or too long for the rule
  std::uint64_t truncated = 0;    // cut, but still used
  std::uint64_t cut_prompts = 0;  // pairs in `truncated` that lost the beginning of their prompt
  std::uint64_t cut_answers = 0;  // pairs in `truncated` that lost the end of a side
  std::uint64_t targets = 0;      // number of targets at the packed length
  std::uint64_t lost_targets = 0;

  [[nodiscard]] bool any() const { return dropped != 0 || truncated != 0; }
};

/// Counts the data that the documents in `range` lose at `seq_len`. If the range is the whole set,
/// `dropped` includes the documents that `pack` dropped for its length. Returns nullopt for texts
/// (kind pretrain: longer documents are cut into parts and keep all tokens), for prompts (kind rl:
/// a run uses them whole, or refuses them), and for a length that is not below the packed length.
/// Reads the tables of targets, not the tokens. Throws like TokenSet.
std::optional<LengthTruncation> length_loss(const TokenSet& set, std::int64_t seq_len,
                                            const DocumentRange& range);

}  // namespace trireme::data
