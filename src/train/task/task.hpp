#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/agree.hpp"
#include "config/config_set.hpp"
#include "core/error.hpp"
#include "core/fields.hpp"
#include "core/measures.hpp"
#include "core/problems.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "objective/value.hpp"
#include "train/state/frozen_model.hpp"
#include "train/task/sample_source.hpp"

namespace trireme::train {

/// Returns the absolute form of a path; "" stays "".
std::string absolute_path_or_empty(const std::string& place);

/// A frozen model that a task uses.
struct FrozenModelSpec {
  std::string name{};               // its weights are kept as RUN/<name>, for example "teacher"
  std::string key{};                // its configuration key, for example "distill.teacher"
  std::string checkpoint{};         // path of a checkpoint or run; may be ""
  bool use_start_if_empty = false;  // if `checkpoint` is "": use the model that the run starts from
  bool same_vocabulary = false;     // true if its distribution is compared with the model's
};

/// A critic: a second model that the run trains, with a value head and an optimizer of its own.
struct CriticSpec {
  std::string init{};  // checkpoint or run of its first weights; "": those that the run starts from
  double lr = 0;       // peak learning rate; its schedule is that of optim.lr
  objective::ValueConfig value{};
};

struct TaskContext {
  const RunConfig& config;  // resolved configuration
  model::Transformer& model;
  FrozenModel* frozen;  // model of Task::frozen(); null if there is none
  const parallel::Mesh& mesh;
  std::vector<const data::SampleSet*> sets;  // all training and validation sets of the run
  std::string start_sha256;  // hash_tensors of the weights that the run started from; "": random
  Measures& measures;
};

/// Thrown if generated and recomputed log-probabilities differ too much. The kind is numeric, but a
/// lower learning rate does not help.
class RolloutGapError : public comm::AgreedError {
 public:
  using AgreedError::AgreedError;
};

/// Defines what a run trains on and the objective. Everything else (loop, saves, resume, signals,
/// step hash log, validation, metrics) is the same for all tasks.
class Task {
 public:
  virtual ~Task() = default;

  /// Returns the kinds of token sets that the task trains on, such as "pretrain".
  [[nodiscard]] virtual std::vector<std::string_view> set_kinds() const = 0;

  /// Returns the fields of the task's own configuration section, which the task stores itself. The
  /// keys are saved and compared like all others.
  [[nodiscard]] virtual std::vector<Field> section() { return {}; }

  /// Makes paths absolute, so that config.toml is valid in every working directory.
  virtual void make_paths_absolute() {}

  /// Sets the keys of the section that the user did not set if their default depends on other keys.
  /// Called before check().
  virtual void choose_defaults(config::ConfigSet& /*keys*/) {}

  virtual void check(Problems& /*problems*/) const {}

  /// Returns true if the task needs a trained model (`--init`). The run keeps the model's shape,
  /// tokenizer and chat format.
  [[nodiscard]] virtual bool needs_start() const { return false; }

  /// Returns the number of optimizer steps that use the samples of one global batch.
  [[nodiscard]] virtual std::int64_t steps_per_batch(const RunConfig& /*config*/) const {
    return 1;
  }

  /// Returns the number of steps that the checkpoint with these values has taken of a batch that it
  /// lies within; 0 if the next step begins a batch.
  [[nodiscard]] virtual std::int64_t steps_in_batch(const RunConfig& /*config*/,
                                                    const RunValues& /*values*/) const {
    return 0;
  }

  /// Returns the number of rows of a micro batch for each sample that train.micro_batch counts.
  [[nodiscard]] virtual std::int64_t rows_per_sample() const { return 1; }

  /// Returns true if the task can train adapters with frozen base weights (section [lora]).
  [[nodiscard]] virtual bool trains_adapters() const { return needs_start(); }

  /// Returns true if the task trains a reward head, which its checkpoints then hold besides the
  /// language model (checkpoint::kHeadValue).
  [[nodiscard]] virtual bool trains_reward_head() const { return false; }

  /// Returns the task's default of optim.lr; nullopt: the optimizer's default.
  [[nodiscard]] virtual std::optional<double> default_lr() const { return std::nullopt; }

  /// Sets task-specific options of the data. `encode` calls the tokenizer of the first set.
  virtual void choose_data(data::StreamConfig& /*stream*/,
                           const data::EncodeWord& /*encode*/) const {}

  [[nodiscard]] virtual std::optional<FrozenModelSpec> frozen(const RunConfig& /*config*/) const {
    return std::nullopt;
  }

  /// Returns the critic of the task; nullopt if it has none.
  [[nodiscard]] virtual std::optional<CriticSpec> critic() const { return std::nullopt; }

  /// Returns true if each rank holds a copy of the whole trained model in this layout.
  [[nodiscard]] virtual bool copies_whole_model(const RunConfig& /*config*/) const { return false; }

  /// Returns true if the task compares the model with the start, which must then be a whole model.
  [[nodiscard]] virtual bool compares_with_start(const RunConfig& /*config*/) const {
    return false;
  }

  /// Checks files of the task other than data and checkpoints, before the run changes anything.
  /// `sets`: all training and validation sets. Throws Error(data) if a file is damaged,
  /// Error(usage) if it belongs to other data.
  virtual void check_files(const RunConfig& /*config*/,
                           std::span<const data::SampleSet* const> /*sets*/) const {}

  /// Creates the objective from the resolved configuration. It declares its measures.
  [[nodiscard]] virtual std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const = 0;

  /// Returns the source of the training samples. The default gives the samples of the data sets in
  /// a fixed order.
  [[nodiscard]] virtual std::unique_ptr<SampleSource> make_source(
      const SourceContext& context) const;
};

/// Creates the objective of cross entropy over the targets, with their weights if there are any.
std::unique_ptr<objective::Objective> make_cross_entropy(const TaskContext& context);

/// A task as a command: `trireme NAME`.
struct TaskRow {
  std::string_view name;
  std::string_view help;
  std::unique_ptr<Task> (*make)();
};

/// Returns all tasks. A new task is a file and a row in tasks.cpp.
std::span<const TaskRow> task_rows() noexcept;

}  // namespace trireme::train
