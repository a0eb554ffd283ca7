#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch.hpp"
#include "text/tokenizer.hpp"

/// Multiple choice by log-likelihood, as lm-eval 0.4 does it with an empty `target_delimiter`: each
/// ending is scored by the sum of the log-probabilities of its tokens after the context.
namespace trireme {

struct ChoiceItem {
  std::string context;
  std::vector<std::string> endings;  // one or more, none empty
  std::int64_t label = 0;            // of the right one
  std::string where;                 // "items.jsonl:3"
};

/// One {"ctx": "...", "endings": ["...", ...], "label": 0} a line, in order; other members are
/// ignored, blank lines skipped. Throws Error(data) with file and line for anything else, and for a
/// file without an item.
std::vector<ChoiceItem> read_choices(const std::filesystem::path& file);

/// A context and an ending as ids.
struct ContextAndEnding {
  std::vector<std::uint32_t> context;
  std::vector<std::uint32_t> ending;
};

/// White space at the end of `context` moves to the ending; then the ids of both together, of which
/// as many belong to the context as it has alone. An empty context becomes `prefix`. Special tokens
/// in the texts count, none are added. Throws Error(data) naming `where` if no id is left to the
/// ending. Source: lm-evaluation-harness 0.4, TemplateLM._encode_pair.
ContextAndEnding encode_pair(const Tokenizer& tokenizer, std::uint32_t prefix,
                             std::string_view context, std::string_view ending,
                             std::string_view where);

/// The beginning-of-text token, where there is none that of the end: what stands before an ending
/// without context. Throws Error(data) where the tokenizer has neither.
std::uint32_t prefix_id(const Tokenizer& tokenizer);

/// One row of a segment for each text, whose targets are the ids of its ending; a text longer than
/// `max_length` + 1 ids loses its beginning. Throws Error(data) for an ending longer than max_length.
Batch batch_of_endings(std::span<const ContextAndEnding> texts, std::int64_t max_length);

/// The score of each text's ending, from the log-probabilities of the batch's targets, in their
/// order.
std::vector<double> sums_of_endings(std::span<const ContextAndEnding> texts,
                                    std::span<const double> log_probs);

struct ChoiceResult {
  std::vector<double> scores;    // of each ending: sum of log p
  std::int64_t choice = 0;       // the highest, of equals the first
  std::int64_t choice_norm = 0;  // the same of scores / characters (code points) of the ending
};

/// `scores`: one of each ending of `item`.
ChoiceResult choose(const ChoiceItem& item, std::vector<double> scores);

/// Bytes of text that each id stands for; special tokens have none.
std::vector<std::int64_t> bytes_of_tokens(const Tokenizer& tokenizer);

/// `loss_sum` in nats over all targets, which stand for `bytes` of text.
double bits_per_byte(double loss_sum, double bytes);

}  // namespace trireme
