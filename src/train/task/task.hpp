#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/fields.hpp"
#include "core/measures.hpp"
#include "core/problems.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "train/config/config.hpp"

namespace trireme {

/// What is trained. All else (the loop, saving, resume, signals, chain, validation, metrics) is the
/// same for all tasks and knows none of them.
class Task {
 public:
  virtual ~Task() = default;

  /// Of the token sets that it trains on, which decides what a batch holds: "pretrain".
  [[nodiscard]] virtual std::string_view set_kind() const = 0;

  /// A section of the configuration that only this task has, kept in the task itself; its keys
  /// are saved and compared like all others. None: {}.
  [[nodiscard]] virtual std::vector<Field> section() { return {}; }

  /// Adds what is wrong with the section.
  virtual void check(Problems& /*problems*/) const {}

  /// Once the configuration is whole. The objective declares what it reports in `measures`.
  [[nodiscard]] virtual std::unique_ptr<Objective> make_objective(const RunConfig& config,
                                                                  Transformer& model,
                                                                  Measures& measures) const = 0;
};

/// A task as a command: `trireme NAME`.
struct TaskRow {
  std::string_view name;
  std::string_view help;
  std::unique_ptr<Task> (*make)();
};

/// All tasks; a new one is a file and a row in tasks.cpp.
std::span<const TaskRow> task_rows() noexcept;

}  // namespace trireme
