#include "bin/trireme/eval_core.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/agree.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/log.hpp"
#include "train/eval/core_prompts.hpp"
#include "train/eval/core_scores.hpp"

namespace trireme {
namespace {

using TaskResults = std::vector<train::CoreItemResult>;

Json prediction(const train::CoreTask& task, std::size_t index,
                const train::CoreItemResult& result) {
  Json shots = Json::array();
  for (const std::size_t shot : train::draw_shots(task, index))
    shots.push_back(task.items[shot].line);
  Json line{{"task", task.label},
            {"index", index},
            {"line", task.items[index].line},
            {"shots", std::move(shots)},
            {"losses", result.losses},
            {"num_targets", result.num_targets},
            {"num_correct", result.num_correct},
            {"correct", result.is_correct}};
  if (task.type != train::CoreType::language_modeling) {
    line["choice"] = result.choice;
    line["gold"] = task.items[index].gold;
  }
  return line;
}

void write_predictions(const std::string& file, const std::vector<train::CoreTask>& tasks,
                       const std::vector<TaskResults>& results) {
  std::string text;
  for (std::size_t i = 0; i < tasks.size(); ++i)
    for (std::size_t index = 0; index < results[i].size(); ++index)
      text += json_line(prediction(tasks[i], index, results[i][index]));
  write_file_atomic(file, text);
}

/// Logs how many items have lost the beginning of a prompt.
void warn_of_cut_items(const std::vector<train::CoreTask>& tasks,
                       const std::vector<TaskResults>& results, std::int64_t max_seq_len) {
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto num_cut = std::count_if(results[i].begin(), results[i].end(),
                                       [](const train::CoreItemResult& one) { return one.is_cut; });
    if (num_cut > 0) {
      log::warn(formatted(
          "task {}: the prompts of {} of {} items are longer than model.max_seq_len ({} tokens) and "
          "lost their beginning",
          tasks[i].label, num_cut, results[i].size(), max_seq_len));
    }
  }
}

std::string text_of(const CoreEvaluation& evaluation, const std::vector<train::CoreTask>& tasks,
                    const std::vector<TaskResults>& results) {
  const train::CoreFigures figures = train::summarize(tasks, results);
  Json list = Json::array();
  std::string table;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const train::CoreTaskFigures& one = figures.tasks[i];
    table += formatted("{}: accuracy {}, centered {}, {} items, {} shots\n", tasks[i].label,
                       one.accuracy, one.centered, results[i].size(), tasks[i].shots);
    list.push_back({{"label", tasks[i].label},
                    {"type", train::kCoreTypes[static_cast<std::size_t>(tasks[i].type)]},
                    {"shots", tasks[i].shots},
                    {"num_items", results[i].size()},
                    {"accuracy", one.accuracy},
                    {"baseline", one.baseline},
                    {"centered", one.centered}});
  }
  if (evaluation.json) return json_line({{"core", figures.core}, {"tasks", std::move(list)}});
  return table +
         formatted("{}: CORE {}, {} tasks\n", evaluation.bundle, figures.core, tasks.size());
}

}  // namespace

std::string core_text(const CoreEvaluation& evaluation, generate::LoadedModel& model,
                      comm::Communicator& world) {
  std::vector<train::CoreTask> tasks;
  comm::all_or_none(
      world, [&] { tasks = train::read_core_bundle(evaluation.bundle, evaluation.max_per_task); });
  const std::vector<TaskResults> results = train::score_core(
      *model.transformer, tasks, model.tokenizer, evaluation.batch, ops::Path::fast, world);
  std::string text;
  comm::all_or_none(world, [&] {
    if (world.rank() != 0) return;
    warn_of_cut_items(tasks, results, model.transformer->config().max_seq_len);
    if (!evaluation.predictions.empty()) write_predictions(evaluation.predictions, tasks, results);
    text = text_of(evaluation, tasks, results);
  });
  return text;
}

}  // namespace trireme
