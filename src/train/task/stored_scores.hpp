#pragma once
#include <memory>
#include <span>
#include <string>

#include "checkpoint/reference/reference_scores.hpp"
#include "data/order/samples.hpp"
#include "objective/sequence_scores.hpp"
#include "train/config/config.hpp"

/// Reference log-probabilities that `trireme dpo-reference` precomputed for `trireme dpo`.
namespace trireme::train {

/// The facts of a run that reads stored scores.
struct ScoreReader {
  const RunConfig& config;
  const std::string& folder;                     // dpo.reference
  const std::string& score;                      // dpo.score
  std::span<const data::SampleSet* const> sets;  // all training and validation sets of the run
};

/// Checks that the table has a score of every preference pair that the run uses; reads no tokens.
/// Throws Error(usage) if dpo.score differs or a score is missing. The message names data set, pair
/// and the command that computes the scores.
void check_scores(const checkpoint::ReferenceTable& table, const ScoreReader& reader);

/// Builds the reference from a table that check_scores accepts. Tables of version 1 have no keys,
/// so their keys are computed here, which reads the tokens of the data set once.
std::unique_ptr<objective::StoredReference> stored_reference(
    const checkpoint::ReferenceTable& table, const ScoreReader& reader,
    const parallel::ContextGroup& context);

}  // namespace trireme::train
