#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config_set.hpp"
#include "core/fields.hpp"
#include "core/measures.hpp"
#include "core/problems.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "train/state/frozen_model.hpp"
#include "train/task/sample_source.hpp"

namespace trireme {

/// "" stays.
std::string absolute_place(const std::string& place);

/// A model that a task holds beside the one it trains, and never changes.
struct FrozenNeed {
  std::string name{};            // the run keeps its weights as RUN/<name>: "teacher"
  std::string key{};             // that names it: "distill.teacher"
  std::string checkpoint{};      // or a run's folder
  bool or_start = false;         // where that is "": what the run itself started from
  bool same_vocabulary = false;  // its distribution is compared with the model's
};

/// What an objective is made from.
struct TaskContext {
  const RunConfig& config;  // whole
  Transformer& model;
  FrozenModel* frozen;  // of Task::frozen(); null where that is none
  const Mesh& mesh;
  std::vector<const SampleSet*> sets;  // all that the run trains and validates on
  std::string start_sha256;  // hash_tensors of the weights that the run started from; "": none
  Measures& measures;
};

/// What is trained. All else (the loop, saving, resume, signals, chain, validation, metrics) is the
/// same for all tasks and knows none of them.
class Task {
 public:
  virtual ~Task() = default;

  /// Of the token sets that it trains on, which decides what a batch holds: "pretrain".
  [[nodiscard]] virtual std::vector<std::string_view> set_kinds() const = 0;

  /// A section of the configuration that only this task has, kept in the task itself; its keys
  /// are saved and compared like all others. None: {}.
  [[nodiscard]] virtual std::vector<Field> section() { return {}; }

  /// So that the run goes on from any folder with what its config.toml says.
  virtual void make_paths_absolute() {}

  /// Fills keys of the section that nobody has set and whose default depends on other keys. Called
  /// before check().
  virtual void choose_defaults(ConfigSet& /*keys*/) {}

  /// Adds what is wrong with the section.
  virtual void check(Problems& /*problems*/) const {}

  /// It goes on from a trained model: `--init`, whose shape, tokenizer and chat format are given.
  [[nodiscard]] virtual bool needs_start() const { return false; }

  /// It can train adapters beside frozen weights (section [lora]).
  [[nodiscard]] virtual bool trains_adapters() const { return needs_start(); }

  /// Of optim.lr, where nobody sets it; none: the optimizer's.
  [[nodiscard]] virtual std::optional<double> default_lr() const { return std::nullopt; }

  /// Sets what of the data is the task's own; `encode` asks the tokenizer of the first set.
  virtual void choose_data(StreamConfig& /*stream*/, const EncodeWord& /*encode*/) const {}

  [[nodiscard]] virtual std::optional<FrozenNeed> frozen(const RunConfig& /*config*/) const {
    return std::nullopt;
  }

  /// It compares the model with what the run started from, which must be a whole model then.
  [[nodiscard]] virtual bool compares_with_start(const RunConfig& /*config*/) const {
    return false;
  }

  /// Checks what the task reads beside the data and checkpoints, before anything is made. `sets` are
  /// all that the run trains and validates on. Throws Error(data) if a file is damaged, Error(usage)
  /// if it belongs to other data.
  virtual void check_files(const RunConfig& /*config*/,
                           std::span<const SampleSet* const> /*sets*/) const {}

  /// Once the configuration is whole. The objective declares what it reports in the measures.
  [[nodiscard]] virtual std::unique_ptr<Objective> make_objective(
      const TaskContext& context) const = 0;

  /// Returns the source of the samples that the model is trained on. The default gives the samples
  /// of the data sets in a fixed order.
  [[nodiscard]] virtual std::unique_ptr<SampleSource> make_source(
      const SourceContext& context) const;
};

/// Next-token prediction over whole documents.
std::unique_ptr<Task> make_pretrain();

/// Supervised fine-tuning on chats: cross entropy over the tokens of the assistant.
std::unique_ptr<Task> make_sft();

/// Learning from preferred answers (DPO, IPO) beside a frozen reference.
std::unique_ptr<Task> make_dpo();

/// A student learns from the data and from a frozen teacher of any shape.
std::unique_ptr<Task> make_distill();

/// Returns the cross entropy over the targets of a batch, each times its weight if the batch has any.
std::unique_ptr<Objective> make_cross_entropy(const TaskContext& context);

/// A task as a command: `trireme NAME`.
struct TaskRow {
  std::string_view name;
  std::string_view help;
  std::unique_ptr<Task> (*make)();
};

/// All tasks; a new one is a file and a row in tasks.cpp.
std::span<const TaskRow> task_rows() noexcept;

}  // namespace trireme
