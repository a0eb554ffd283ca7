#include "train/task/stored_scores.hpp"

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/join.hpp"

namespace trireme::train {
namespace {

/// Returns the command that computes all scores that the run needs.
std::string command_for(const ScoreReader& reader) {
  const RunConfig& config = reader.config;
  const bool named = config.checkpoint.names_checkpoint();
  std::string text = formatted("trireme dpo-reference --init {} --data {}",
                               named ? shell_word(config.checkpoint.resume) : "MODEL",
                               shell_word(config.data.path));
  if (!config.data.valid_path.empty() && config.train.eval_every > 0)
    text += cat(" --data.valid_path ", shell_word(config.data.valid_path));
  text += formatted(" --seq-len {} --precision {}", config.train.seq_len, config.train.precision);
  if (reader.score != "all") text += cat(" --dpo.score ", reader.score);
  return cat(text, " --output ", shell_word(reader.folder));
}

[[noreturn]] void fail_reference(const ScoreReader& reader, const std::string& what) {
  fail(ErrorKind::usage,
       "dpo.reference = {} {}. Move that directory away and compute the scores again:\n  {}",
       reader.folder, what, command_for(reader));
}

/// Returns the reason why the table has no scores of a data set at this sequence length.
std::string reason_of(const checkpoint::ReferenceTable& table, const data::SampleSet& samples) {
  const std::string& content = samples.set().content_hash();
  std::vector<std::string> lengths;
  std::vector<std::string> others;
  for (const checkpoint::ReferenceSet& set : table.sets) {
    if (set.content_xxh3 == content) lengths.push_back(std::to_string(set.seq_len));
    others.push_back(set.name.empty() ? cat("content ", set.content_xxh3) : set.name);
  }
  if (!lengths.empty()) {
    return formatted(
        "the data set was scored with at most {} tokens per side, but this run uses {}",
        joined(lengths, " and "), samples.seq_len());
  }
  return formatted("it was computed for {}", joined(others, ", "));
}

}  // namespace

void check_scores(const checkpoint::ReferenceTable& table, const ScoreReader& reader) {
  if (table.origin.score != reader.score) {
    fail_reference(reader, formatted("was computed with dpo.score = {}, but this run has {}",
                                     table.origin.score, reader.score));
  }
  for (const data::SampleSet* samples : reader.sets) {
    const data::TokenSet& set = samples->set();
    const checkpoint::ReferenceSet* const found =
        table.find(set.content_hash(), samples->seq_len());
    for (std::uint64_t i = 0; i < samples->size(); ++i) {
      const auto document = static_cast<std::int64_t>(samples->pair_document(i));
      if (found != nullptr && found->has(document)) continue;
      const std::string reason =
          found == nullptr ? reason_of(table, *samples) : "that pair was not scored";
      fail_reference(reader,
                     formatted("has no score of pair {} of data set {} (content {}): {}", document,
                               set.folder().string(), set.content_hash(), reason));
    }
  }
}

std::unique_ptr<objective::StoredReference> stored_reference(
    const checkpoint::ReferenceTable& table, const ScoreReader& reader,
    const parallel::ContextGroup& context) {
  std::vector<objective::PairScore> scores;
  const auto add = [&](const checkpoint::ReferenceSet& set, std::size_t row, std::uint64_t key) {
    scores.push_back({key,
                      set.documents[row],
                      {set.sums[2 * row], set.sums[2 * row + 1]},
                      {set.counts[2 * row], set.counts[2 * row + 1]}});
  };
  for (const checkpoint::ReferenceSet& set : table.sets) {
    for (std::size_t row = 0; row < set.keys.size(); ++row) add(set, row, set.keys[row]);
    if (!set.keys.empty()) continue;
    for (const data::SampleSet* samples : reader.sets) {
      if (table.find(samples->set().content_hash(), samples->seq_len()) != &set) continue;
      for (std::uint64_t i = 0; i < samples->size(); ++i) {
        const auto document = static_cast<std::int64_t>(samples->pair_document(i));
        const auto at = std::lower_bound(set.documents.begin(), set.documents.end(), document);
        if (at == set.documents.end() || *at != document) continue;
        add(set, static_cast<std::size_t>(at - set.documents.begin()), samples->pair_key(i));
      }
    }
  }
  return std::make_unique<objective::StoredReference>(scores, reader.folder, context);
}

}  // namespace trireme::train
