#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// The evaluation bundle of CORE, the metric of 22 tasks of DataComp-LM (DCLM): a directory with
/// `core.yaml`, `eval_meta_data.csv` and `eval_data/`, as nanochat uses it.
/// Source: Li et al., "DataComp-LM", 2024; nanochat, scripts/base_eval.py.
namespace trireme::train {

/// Number of tasks of CORE.
inline constexpr std::size_t kNumCoreTasks = 22;

enum class CoreType { multiple_choice, schema, language_modeling };

/// The values of `icl_task_type`, by CoreType.
inline constexpr std::array<std::string_view, 3> kCoreTypes{"multiple_choice", "schema",
                                                            "language_modeling"};

/// One record of a task. A prompt is context, delimiter, continuation. The items of
/// multiple_choice have one context and several continuations, those of schema several contexts
/// and one continuation.
struct CoreItem {
  std::vector<std::string> contexts;
  std::vector<std::string> continuations;
  std::int64_t gold = 0;  // index of the right option; 0 for language_modeling
  std::int64_t line = 0;  // line of the file, from 1
  std::string where;      // for example "eval_data/copa.jsonl:3"

  [[nodiscard]] std::size_t num_options() const {
    return contexts.size() > 1 ? contexts.size() : continuations.size();
  }

  [[nodiscard]] const std::string& context(std::size_t option) const {
    return contexts[contexts.size() > 1 ? option : 0];
  }

  [[nodiscard]] const std::string& continuation(std::size_t option) const {
    return continuations[continuations.size() > 1 ? option : 0];
  }
};

struct CoreTask {
  std::string label;
  CoreType type = CoreType::multiple_choice;
  std::int64_t shots = 0;       // number of solved examples before each item
  std::string delimiter = " ";  // between context and continuation
  double baseline = 0;          // accuracy of random answers, in percent
  std::vector<CoreItem> items;  // shuffled
};

/// Reads a bundle. The items of each task are shuffled with the draws of Python's
/// `Random(1337).shuffle`; then only the first `max_per_task` stay (0: all). Throws Error(data)
/// that names what is wrong: a missing file, key, task or baseline, or an invalid record.
std::vector<CoreTask> read_core_bundle(const std::filesystem::path& bundle,
                                       std::int64_t max_per_task);

/// Returns the rows of a CSV file as maps from the names in its first row. Quoted fields may
/// contain commas, line ends and doubled quotes (RFC 4180). Throws Error(data) with `name`.
std::vector<std::map<std::string, std::string>> read_csv(std::string_view content,
                                                         std::string_view name);

}  // namespace trireme::train
