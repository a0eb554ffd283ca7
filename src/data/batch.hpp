#pragma once
#include <cstdint>
#include <vector>

namespace trireme::data {

/// The target of a position without a prediction: padding, the last token of a segment, a masked
/// token.
inline constexpr std::int64_t kIgnoreTarget = -100;

/// The index of a row without a sample: only padding, no targets (fills the last batch of an
/// evaluation).
inline constexpr std::int64_t kNoSample = -1;

/// B sequences of T tokens, described globally: nothing depends on the rank that holds the batch.
///
/// Row b is tokens[b*T .. b*T+T). A row consists of segments (parts of documents). A token sees
/// only its own segment, and the last token of a segment has no target. The rest of a row is one
/// segment of padding without targets.
///
/// A batch of preference pairs has B = 1. The row contains 2 * num_pairs segments, chosen then
/// rejected of each pair, and T is their total length (with padding).
struct Batch {
  std::int64_t B = 0;
  std::int64_t T = 0;
  std::vector<std::int64_t> tokens;   // [B*T]
  std::vector<std::int64_t> targets;  // [B*T] the next token of the same segment, or kIgnoreTarget
  std::vector<std::int64_t> positions;  // [B*T] from 0 at the start of each segment
  std::vector<std::int32_t>
      segment_bounds;  // [S+1] over the B*T flat tokens: 0, ..., B*T, strictly ascending
  // [B] global sample index of each row, or kNoSample; for preference pairs [num_pairs]
  std::vector<std::int64_t> sample_indices;
  std::int64_t num_targets = 0;     // targets of this batch that are not kIgnoreTarget
  std::int64_t update_targets = 0;  // sum of num_targets over the update, all ranks (UpdateTargets)
  std::vector<float> target_weights;  // [B*T] factor of the loss of each target; empty: all 1

  // [B] tokens of each row before its padding; empty: no row has padding.
  std::vector<std::int64_t> row_lengths;
  // Counts of the whole update over all ranks (set by the loader): rows or pairs, and their
  // batches.
  std::int64_t update_samples = 0;
  std::int64_t update_batches = 0;

  // For preference pairs only:
  std::vector<std::int32_t> sequence_of;   // [B*T] 2 * pair + side (1: rejected); -1: padding
  std::int64_t num_pairs = 0;              // pairs in this batch
  std::vector<std::int64_t> pair_records;  // [num_pairs] documents, counted over shards and sets
  // [num_pairs] XXH3-64 of token set, length, tokens and targets of both sides of a pair
  std::vector<std::uint64_t> pair_keys;
};

}  // namespace trireme::data
