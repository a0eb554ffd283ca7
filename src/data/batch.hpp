#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace trireme::data {

/// The target of a position that predicts nothing: padding, the last token of a segment, or a
/// position before a masked token.
inline constexpr std::int64_t kIgnoreTarget = -100;

/// The sample index of a row that contains only padding and no targets. Such rows fill the last
/// batch of an evaluation or of a run.
inline constexpr std::int64_t kNoSample = -1;

/// The values of a generated token that a policy-gradient loss needs.
struct PolicyTarget {
  double rollout_logprob = 0;    // log-probability when the token was sampled
  double old_logprob = 0;        // log-probability in the denominator of the ratio
  double reference_logprob = 0;  // log-probability of the frozen reference
  double advantage = 0;
  double correction = 1;    // factor of the policy term
  double weight = 0;        // factor of the loss of the token
  double value = 0;         // value that the critic gave the token after the generation
  double value_target = 0;  // return of the token, which the critic learns
};

/// B rows of T tokens each. The content does not depend on the rank that holds the batch.
///
/// Row b is tokens[b*T .. b*T+T). A row consists of segments (parts of documents). A token sees
/// only its own segment, and the last token of a segment has no target. The rest of a row is one
/// segment of padding without targets.
///
/// A batch of preference pairs has B = 1. The row contains 2 * num_pairs segments: for each pair
/// the chosen side, then the rejected side. T is the total length of all segments, including the
/// padding.
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
  std::int64_t num_targets = 0;  // targets of this batch that are not kIgnoreTarget
  // sum of num_targets over all batches of the update on all ranks (see UpdateTargets)
  std::int64_t update_targets = 0;
  std::vector<float> target_weights;  // [B*T] factor of the loss of each target; empty: all 1

  // [B] tokens of each row before its padding; empty: no row has padding.
  std::vector<std::int64_t> row_lengths;
  // DataLoader sets these counts of the whole update over all ranks: the number of samples (rows or
  // pairs) and the number of their micro-batches.
  std::int64_t update_samples = 0;
  std::int64_t update_batches = 0;

  // For preference pairs only:
  std::vector<std::int32_t> sequence_of;  // [B*T] 2 * pair + side (1: rejected); -1: padding
  std::int64_t num_pairs = 0;             // pairs in this batch
  // [num_pairs] document of each pair, counted over shards and sets
  std::vector<std::int64_t> pair_records;
  // [num_pairs] XXH3-64 hash of the token set, the lengths, and the tokens and targets of both
  // sides
  std::vector<std::uint64_t> pair_keys;

  // For a set with one answer per document (SampleForm::answer): a batch of the same samples in
  // which each prompt has the answer of another prompt (Pairs::with_other_prompt). No loss trains
  // on it. In the batch itself, sequence 2 * pair holds a desirable answer, or sequence
  // 2 * pair + 1 an undesirable one. Here, the other sequence of the pair holds the answer.
  std::shared_ptr<const Batch> mismatched;
  // For generated answers only: [num_targets] in token order.
  std::vector<PolicyTarget> policy_targets;
};

}  // namespace trireme::data
