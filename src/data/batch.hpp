#pragma once
#include <cstdint>
#include <vector>

namespace trireme {

/// The target of a position that predicts nothing: padding, the last token of
/// a segment, a masked token.
inline constexpr std::int64_t kIgnoreTarget = -100;

/// A row that stands for no sample: all padding, no target (fills the last batch of an evaluation).
inline constexpr std::int64_t kNoSample = -1;

/// B sequences of T tokens, described globally: nothing in it depends on which rank holds it.
///
/// Row b is tokens[b*T .. b*T+T). A row is a run of segments (pieces of documents); a token sees
/// only its own segment, and the last token of a segment has no target. What is left of a row is
/// one segment of padding without targets.
///
/// A batch of preference pairs has B = 1: the row holds 2 * num_pairs segments, chosen then rejected
/// of one pair after another, and T is what they need.
struct Batch {
  std::int64_t B = 0;
  std::int64_t T = 0;
  std::vector<std::int64_t> tokens;   // [B*T]
  std::vector<std::int64_t> targets;  // [B*T] the next token of the same segment, or kIgnoreTarget
  std::vector<std::int64_t> positions;  // [B*T] from 0 at the start of each segment
  std::vector<std::int32_t>
      segment_bounds;  // [S+1] over the B*T flat tokens: 0, ..., B*T, strictly rising
  // [B] global sample index of each row, or kNoSample; of pairs [num_pairs], of each pair
  std::vector<std::int64_t> sample_indices;
  std::int64_t num_targets = 0;  // targets of this batch that are not kIgnoreTarget
  std::int64_t update_targets =
      0;  // the same over the whole update, all ranks and micro-steps (UpdateTargets)
  std::vector<float> target_weights;  // [B*T] factor of each target's loss; empty: all 1

  // [B] tokens of each row before its padding; empty: none has any.
  std::vector<std::int64_t> row_lengths;
  // Of the whole update, all ranks (loader only): rows or pairs, and batches that hold them.
  std::int64_t update_samples = 0;
  std::int64_t update_batches = 0;

  // Of pairs alone:
  std::vector<std::int32_t> sequence_of;   // [B*T] 2 * pair + side (1: rejected); -1: padding
  std::int64_t num_pairs = 0;              // of this batch
  std::vector<std::int64_t> pair_records;  // [num_pairs] documents, counted over shards and sets
  // [num_pairs] XXH3-64 of a pair's token set, its length, and the tokens and targets of both sides
  std::vector<std::uint64_t> pair_keys;
};

}  // namespace trireme
