#pragma once
#include <memory>
#include <span>
#include <string>

#include "checkpoint/reference/reference_scores.hpp"
#include "data/order/samples.hpp"
#include "objective/sequence_scores.hpp"
#include "train/config/config.hpp"

/// Reference scores that `trireme dpo-reference` computed, for a run of `trireme dpo`.
namespace trireme {

/// A run that reads stored scores.
struct ScoreReader {
  const RunConfig& config;
  const std::string& folder;               // dpo.reference
  const std::string& score;                // dpo.score
  std::span<const SampleSet* const> sets;  // all that the run trains and validates on
};

/// Checks, without reading a token, that the table has a score of every pair that the run uses.
/// Throws Error(usage) if it is of another dpo.score, or if a score is missing: the message names
/// data set, pair and the command that computes it.
void check_scores(const ReferenceTable& table, const ScoreReader& reader);

/// Makes the reference of a table that check_scores accepts. A table of version 1 has no keys: they
/// are computed here, which reads the tokens of its data set once.
std::unique_ptr<StoredReference> stored_reference(const ReferenceTable& table,
                                                  const ScoreReader& reader,
                                                  const ContextGroup& context);

}  // namespace trireme
