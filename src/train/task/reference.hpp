#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/reference/reference_scores.hpp"
#include "data/order/samples.hpp"
#include "objective/sequence_scores.hpp"
#include "train/config/config.hpp"
#include "train/task/task.hpp"

/// The reference of a task that compares answers with a frozen model. Its scores come from a frozen
/// model, from the trained model without its adapters, or from `trireme dpo-reference`.
namespace trireme::train {

/// The keys of a task that choose its reference.
struct ReferenceKeys {
  std::string_view section;      // "dpo"
  const std::string& reference;  // dpo.reference; "": the model that the run starts from
  const std::string& score;      // dpo.score; "": the values of dpo.score mean the same targets
};

/// Returns the frozen model for Task::frozen(). No model is needed for adapters with their own
/// base, or for stored scores.
std::optional<FrozenModelSpec> reference_model(const ReferenceKeys& keys, const RunConfig& config);

/// Checks stored scores for Task::check_files(); other references have no files.
void check_reference(const ReferenceKeys& keys, const RunConfig& config,
                     std::span<const data::SampleSet* const> sets);

/// Creates the reference of an objective.
std::unique_ptr<objective::ReferenceScores> make_reference(const ReferenceKeys& keys,
                                                           const TaskContext& context);

/// Creates the scores of the trained model itself, without dropout.
std::unique_ptr<objective::ReferenceScores> make_own_scores(const TaskContext& context);

/// The facts of a run that reads stored scores.
struct ScoreReader {
  const RunConfig& config;
  ReferenceKeys keys;
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
