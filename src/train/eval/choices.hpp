#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch.hpp"
#include "text/tokenizer.hpp"

/// Multiple choice by log-likelihood, like lm-eval 0.4 with an empty `target_delimiter`: the score
/// of an ending is the sum of the log-probabilities of its tokens after the context.
namespace trireme::train {

struct ChoiceItem {
  std::string context;
  std::vector<std::string> endings;  // at least one; none is empty
  std::int64_t label = 0;            // index of the right ending
  std::string where;                 // for example "items.jsonl:3"
};

/// Reads one item {"ctx": "...", "endings": ["...", ...], "label": 0} per line, in order. Ignores
/// other members and blank lines. Throws Error(data) with file and line for an invalid record, and
/// for a file without an item.
std::vector<ChoiceItem> read_choices(const std::filesystem::path& file);

/// A context and an ending as token ids.
struct ContextAndEnding {
  std::vector<std::uint32_t> context;
  std::vector<std::uint32_t> ending;
};

/// Encodes a context and an ending. Trailing white space of `context` moves to the ending. Both
/// are encoded together, and the first ids, as many as the context alone has, are the context. An
/// empty context becomes `prefix`. Special tokens in the texts are recognized; none are added.
/// Throws Error(data) naming `where` if the ending has no id of its own. Source:
/// lm-evaluation-harness 0.4, TemplateLM._encode_pair.
ContextAndEnding encode_pair(const text::Tokenizer& tokenizer, std::uint32_t prefix,
                             std::string_view context, std::string_view ending,
                             std::string_view where);

/// Returns the token before an ending without context: bos_token, or eos_token if there is none.
/// Throws Error(data) if the tokenizer has neither.
std::uint32_t prefix_id(const text::Tokenizer& tokenizer);

/// Returns one row with one segment per text. The targets are the ids of the endings. A text of
/// more than `max_length` + 1 ids loses its beginning. Throws Error(data) for an ending longer
/// than max_length.
data::Batch batch_of_endings(std::span<const ContextAndEnding> texts, std::int64_t max_length);

/// Returns the score of each ending: sums of the log-probabilities of the batch's targets, in
/// order.
std::vector<double> sums_of_endings(std::span<const ContextAndEnding> texts,
                                    std::span<const double> log_probs);

struct ChoiceResult {
  std::vector<double> scores;    // sum of log p of each ending
  std::int64_t choice = 0;       // index of the highest score; the first one of equals
  std::int64_t choice_norm = 0;  // index of the highest score per character (code point)
};

/// Chooses an ending. `scores`: one score per ending of `item`.
ChoiceResult choose(const ChoiceItem& item, std::vector<double> scores);

/// Returns the number of text bytes of each id; 0 for special tokens.
std::vector<std::int64_t> bytes_of_tokens(const text::Tokenizer& tokenizer);

/// Returns bits per byte. `loss_sum`: sum over the targets with text, in nats. `bytes`: their text
/// bytes. Targets without text, such as special tokens, do not count, as in nanochat.
double bits_per_byte(double loss_sum, double bytes);

}  // namespace trireme::train
