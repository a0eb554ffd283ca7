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

namespace trireme {

/// What a model says of one sequence of a set.
struct SequenceScore {
  std::int64_t index = 0;   // of the sequence, in file order
  double loss_sum = 0;      // of -log p over its targets
  double target_bytes = 0;  // of text that its targets stand for; special tokens have none
  std::int64_t num_targets = 0;
  std::int64_t num_correct = 0;  // targets that were the likeliest token
};

/// A token set as a model is asked about it.
struct ScoredSet {
  TokenSet set;
  SampleSet samples;

  /// `seq_len` 0: the set's own; `answers_only`: see SampleConfig. Throws as TokenSet and SampleSet; Error(usage) for a set of another
  /// kind or tokenizer, or for more tokens than the model takes.
  ScoredSet(const std::string& folder, std::span<const std::string_view> kinds,
            std::int64_t seq_len, const Transformer& model, const Tokenizer& tokenizer,
            bool answers_only = false);
  ScoredSet(const ScoredSet&) = delete;  // the samples refer to the set
  ScoredSet& operator=(const ScoredSet&) = delete;
};

/// Scores of all sequences of `samples`, in file order, on rank 0; none elsewhere. Collective over `world`,
/// whose ranks each have the whole model. Batch i of `rows` sequences is the work of rank i modulo
/// their number, so that the scores are the same bit for bit on any number of ranks.
std::vector<SequenceScore> score_set(Transformer& model, const SampleSet& samples,
                                     const Tokenizer& tokenizer, std::int64_t rows, ops::Path path,
                                     Communicator& world);

/// What a model says of the endings of each item, in order, on rank 0; none elsewhere. Collective as
/// score_set; `rows`: items a batch.
std::vector<ChoiceResult> score_choices(Transformer& model, const std::vector<ChoiceItem>& items,
                                        const Tokenizer& tokenizer, std::int64_t rows,
                                        ops::Path path, Communicator& world);

/// Scores all pairs of `pairs`, in file order, on rank 0; none elsewhere. Collective as score_set;
/// `rows`: pairs a batch.
std::vector<PairScore> score_pairs(Transformer& model, const SampleSet& pairs, std::int64_t rows,
                                   ops::Path path, Communicator& world);

/// Means over a set, added up in the order of its sequences.
struct SetFigures {
  double loss = 0;           // nats a target
  double perplexity = 0;     // exp(loss)
  double bits_per_byte = 0;  // of the targets' text
  std::int64_t num_targets = 0;
  std::int64_t num_correct = 0;
};

/// Throws Error(data) if there is no target at all.
SetFigures summarize(const std::vector<SequenceScore>& scores);

}  // namespace trireme
