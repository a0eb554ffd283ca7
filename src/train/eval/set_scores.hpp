#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "data/order/samples.hpp"
#include "model/transformer.hpp"
#include "objective/sequence_scores.hpp"
#include "text/tokenizer.hpp"
#include "train/eval/choices.hpp"

namespace trireme::train {

struct SequenceScore {
  std::int64_t index = 0;   // number of the sequence, in file order
  double loss_sum = 0;      // sum of -log p over its targets
  double text_loss = 0;     // loss_sum of the targets that have text; special tokens have none
  double target_bytes = 0;  // text bytes of its targets
  std::int64_t num_targets = 0;
  std::int64_t num_correct = 0;  // targets that were the most likely token
};

/// A token set that a model is evaluated on.
struct ScoredSet {
  data::TokenSet set;
  data::SampleSet samples;

  /// Opens a set. `seq_len` 0: the length that the set was packed for. `answers_only`: see
  /// SampleConfig. Throws the errors of TokenSet and SampleSet, and Error(usage) for another kind
  /// or tokenizer, or for sequences that are too long for the model.
  ScoredSet(const std::string& folder, std::span<const std::string_view> kinds,
            std::int64_t seq_len, const model::Transformer& model, const text::Tokenizer& tokenizer,
            bool answers_only = false);
  ScoredSet(const ScoredSet&) = delete;  // the samples refer to the set
  ScoredSet& operator=(const ScoredSet&) = delete;
};

/// Scores all sequences of `samples`. Returns them in file order on rank 0, nothing on other
/// ranks. Rank r computes batches r, r + R, r + 2R and so on (R ranks, `rows` sequences per
/// batch), so the scores are bitwise equal for any number of ranks. Each rank has the whole
/// model. Collective over `world`.
std::vector<SequenceScore> score_set(model::Transformer& model, const data::SampleSet& samples,
                                     const text::Tokenizer& tokenizer, std::int64_t rows,
                                     ops::Path path, comm::Communicator& world);

/// Scores the endings of all items. Returns them in order on rank 0, nothing on other ranks.
/// `rows`: items per batch. Collective like score_set.
std::vector<ChoiceResult> score_choices(model::Transformer& model,
                                        const std::vector<ChoiceItem>& items,
                                        const text::Tokenizer& tokenizer, std::int64_t rows,
                                        ops::Path path, comm::Communicator& world);

/// Scores all preference pairs. Returns them in file order on rank 0, nothing on other ranks.
/// `rows`: pairs per batch. Collective like score_set.
std::vector<objective::PairScore> score_pairs(model::Transformer& model,
                                              const data::SampleSet& pairs, std::int64_t rows,
                                              ops::Path path, comm::Communicator& world);

/// The rewards of the answers of a preference pair.
struct PairReward {
  std::int64_t document = 0;
  double chosen = 0;
  double rejected = 0;
};

/// Computes the rewards of all preference pairs with the head [1, D] of a reward model. Returns
/// them in file order on rank 0, nothing on other ranks. `rows`: pairs per batch. Collective like
/// score_set.
std::vector<PairReward> score_rewards(model::Transformer& model, const at::Tensor& head,
                                      const data::SampleSet& pairs, std::int64_t rows,
                                      comm::Communicator& world);

/// Means over a set of preference pairs, added up in file order.
struct RewardFigures {
  double accuracy = 0;  // share of pairs with a higher reward of the chosen answer
  double margin = 0;    // mean of chosen - rejected
  std::int64_t num_pairs = 0;
};

/// Summarizes the rewards of at least one pair.
RewardFigures summarize(const std::vector<PairReward>& rewards);

/// Means over a data set, added up in the order of its sequences.
struct SetFigures {
  double loss = 0;           // nats per target
  double perplexity = 0;     // exp(loss)
  double bits_per_byte = 0;  // over the targets that have text
  std::int64_t num_targets = 0;
  std::int64_t num_correct = 0;
};

/// Summarizes the scores. Throws Error(data) if there is no target.
SetFigures summarize(const std::vector<SequenceScore>& scores);

}  // namespace trireme::train
