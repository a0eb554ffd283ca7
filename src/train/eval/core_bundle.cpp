#include "train/eval/core_bundle.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/by_name.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "train/eval/flat_yaml.hpp"
#include "train/eval/python_random.hpp"

namespace trireme::train {
namespace {

constexpr std::size_t kMaxListBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxTaskBytes = std::size_t{1} << 30;
constexpr std::uint64_t kShuffleSeed = 1337;

/// The labels of CORE in the published bundle.
constexpr std::array<std::string_view, kNumCoreTasks> kLabels{"hellaswag_zeroshot",
                                                              "jeopardy",
                                                              "bigbench_qa_wikidata",
                                                              "arc_easy",
                                                              "arc_challenge",
                                                              "copa",
                                                              "commonsense_qa",
                                                              "piqa",
                                                              "openbook_qa",
                                                              "lambada_openai",
                                                              "hellaswag",
                                                              "winograd",
                                                              "winogrande",
                                                              "bigbench_dyck_languages",
                                                              "agi_eval_lsat_ar",
                                                              "bigbench_cs_algorithms",
                                                              "bigbench_operators",
                                                              "bigbench_repeat_copy_logic",
                                                              "squad",
                                                              "coqa",
                                                              "boolq",
                                                              "bigbench_language_identification"};

using CsvRow = std::map<std::string, std::string>;

/// A task as core.yaml lists it.
struct ListedTask {
  CoreTask task;
  std::string file;   // below eval_data
  std::string where;  // its line in core.yaml
};

const std::string& text_field(const YamlRecord& record, std::string_view key) {
  const auto found = record.fields.find(key);
  if (found == record.fields.end())
    fail(ErrorKind::data, "{}: the task has no key '{}'", record.where, key);
  if (!found->second.text)
    fail(ErrorKind::data, "{}: the value of '{}' must be a text on one line", found->second.where,
         key);
  return *found->second.text;
}

std::int64_t shots_of(const YamlRecord& record) {
  const auto found = record.fields.find("num_fewshot");
  if (found == record.fields.end())
    fail(ErrorKind::data, "{}: the task has no key 'num_fewshot'", record.where);
  constexpr std::int64_t kMostShots = 1000;
  const auto& list = found->second.list;
  const auto shots = list && !list->empty() ? parse_integer(list->front()) : std::nullopt;
  if (!shots || *shots < 0 || *shots > kMostShots) {
    fail(ErrorKind::data,
         "{}: num_fewshot must be a list that begins with an integer of 0 to {}, such as [10]",
         found->second.where, kMostShots);
  }
  return *shots;
}

ListedTask listed_task(const YamlRecord& record) {
  ListedTask listed{{}, text_field(record, "dataset_uri"), record.where};
  CoreTask& task = listed.task;
  task.label = text_field(record, "label");
  const std::string& type = text_field(record, "icl_task_type");
  if (std::find(kCoreTypes.begin(), kCoreTypes.end(), type) == kCoreTypes.end())
    fail(ErrorKind::data, "{}: icl_task_type of task '{}' is '{}'. It must be one of: {}",
         record.where, task.label, type, joined(kCoreTypes, ", "));
  task.type = by_name<CoreType>(kCoreTypes, type);
  task.shots = shots_of(record);
  if (record.fields.contains("continuation_delimiter"))
    task.delimiter = text_field(record, "continuation_delimiter");
  return listed;
}

/// Checks that `tasks` are all tasks of CORE. The labels may be others than those of the published
/// bundle; then `rows` tells which ones are missing.
void check_complete(const std::vector<ListedTask>& tasks, const std::vector<CsvRow>& rows,
                    const std::string& file) {
  std::set<std::string, std::less<>> labels;
  for (const ListedTask& one : tasks)
    if (!labels.insert(one.task.label).second)
      fail(ErrorKind::data, "{}: task '{}' appears twice", one.where, one.task.label);
  if (tasks.size() == kNumCoreTasks) return;
  const auto is_listed = [&](std::string_view label) { return labels.contains(label); };
  std::vector<std::string> missing;
  if (std::any_of(kLabels.begin(), kLabels.end(), is_listed)) {
    for (const std::string_view label : kLabels)
      if (!is_listed(label)) missing.emplace_back(label);
  } else {
    for (const CsvRow& row : rows)
      if (!is_listed(row.at("Eval Task"))) missing.push_back(row.at("Eval Task"));
  }
  fail(ErrorKind::data, "{} lists {} tasks. CORE is the mean over {} tasks{}", file, tasks.size(),
       kNumCoreTasks, missing.empty() ? "" : cat("; missing: ", joined(missing, ", ")));
}

/// Returns the baseline of a task in percent. The last of several rows counts.
double baseline_of(const ListedTask& listed, const std::vector<CsvRow>& rows,
                   const std::string& file) {
  const auto row = std::find_if(rows.rbegin(), rows.rend(), [&](const CsvRow& one) {
    return one.at("Eval Task") == listed.task.label;
  });
  if (row == rows.rend())
    fail(ErrorKind::data, "{} has no row for task '{}' ({})", file, listed.task.label,
         listed.where);
  const std::string& text = row->at("Random baseline");
  const auto value = parse_number(text);
  if (!value || *value < 0 || *value >= 100)
    fail(ErrorKind::data,
         "{}: 'Random baseline' of task '{}' is '{}'. It must be a number of percent in [0, 100)",
         file, listed.task.label, text);
  return *value;
}

std::vector<CsvRow> baseline_rows(const std::filesystem::path& file) {
  std::vector<CsvRow> rows = read_csv(read_text(file, kMaxListBytes), file.string());
  for (const char* column : {"Eval Task", "Random baseline"})
    if (rows.empty() || !rows.front().contains(column))
      fail(ErrorKind::data, "{} has no column '{}' with a value", file.string(), column);
  return rows;
}

/// Returns a member that is a text. Python writes an integer as its digits.
std::string text_of(const Json& value, std::string_view key, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.dump();
  fail(ErrorKind::data, "{}: '{}' must be a text", where, key);
}

std::string text_member(const Json& record, std::string_view key, const std::string& where) {
  const auto found = record.find(key);
  if (found == record.end()) fail(ErrorKind::data, "{}: the record has no '{}'", where, key);
  return text_of(*found, key, where);
}

std::vector<std::string> options_member(const Json& record, std::string_view key,
                                        const std::string& where) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_array() || found->size() < 2)
    fail(ErrorKind::data, "{}: '{}' must be a list of two texts or more", where, key);
  std::vector<std::string> options;
  for (const Json& one : *found) options.push_back(text_of(one, key, where));
  return options;
}

CoreItem core_item(const Json& record, CoreType type, const std::string& where) {
  if (!record.is_object()) fail(ErrorKind::data, "{} must be a JSON object", where);
  CoreItem item;
  item.where = where;
  item.line = parse_integer(where.substr(where.rfind(':') + 1)).value_or(0);
  switch (type) {
    case CoreType::multiple_choice:
      item.contexts = {text_member(record, "query", where)};
      item.continuations = options_member(record, "choices", where);
      break;
    case CoreType::schema:
      item.contexts = options_member(record, "context_options", where);
      item.continuations = {text_member(record, "continuation", where)};
      break;
    case CoreType::language_modeling:
      item.contexts = {text_member(record, "context", where)};
      item.continuations = {text_member(record, "continuation", where)};
      return item;
  }
  item.gold = json_get<std::int64_t>(record, "gold", where);
  if (item.gold < 0 || item.gold >= static_cast<std::int64_t>(item.num_options()))
    fail(ErrorKind::data, "{}: gold is {}. It must be in [0, {}): the index of the right option",
         where, item.gold, item.num_options());
  return item;
}

std::vector<CoreItem> read_items(const std::filesystem::path& file, CoreType type) {
  const std::string content = read_text(file, kMaxTaskBytes);
  std::vector<CoreItem> items;
  for_each_json_line(content, file.string(), [&](const Json& record, const std::string& where) {
    items.push_back(core_item(record, type, where));
  });
  if (items.empty()) fail(ErrorKind::data, "{} has no record", file.string());
  return items;
}

}  // namespace

std::vector<std::map<std::string, std::string>> read_csv(std::string_view content,
                                                         std::string_view name) {
  std::vector<std::vector<std::string>> rows{{""}};
  bool is_quoted = false;
  for (std::size_t at = 0; at < content.size(); ++at) {
    const char c = content[at];
    std::string& field = rows.back().back();
    if (is_quoted && c == '"' && at + 1 < content.size() && content[at + 1] == '"') {
      field += content[++at];
    } else if (c == '"' && (is_quoted || field.empty())) {
      is_quoted = !is_quoted;
    } else if (is_quoted) {
      field += c;
    } else if (c == ',') {
      rows.back().emplace_back();
    } else if (c == '\n') {
      rows.push_back({""});
    } else if (c != '\r') {
      field += c;
    }
  }
  if (is_quoted) fail(ErrorKind::data, "{}: a closing quote is missing", name);
  std::erase(rows, std::vector<std::string>{""});  // blank lines
  std::vector<CsvRow> result;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    CsvRow& row = result.emplace_back();
    for (std::size_t column = 0; column < rows[0].size(); ++column)
      row[rows[0][column]] = column < rows[i].size() ? rows[i][column] : "";
  }
  return result;
}

std::vector<CoreTask> read_core_bundle(const std::filesystem::path& bundle,
                                       std::int64_t max_per_task) {
  const std::filesystem::path list = bundle / "core.yaml";
  std::vector<ListedTask> listed;
  for (const YamlRecord& record :
       read_yaml_records(read_text(list, kMaxListBytes), list.string(), "icl_tasks"))
    listed.push_back(listed_task(record));
  const std::filesystem::path table = bundle / "eval_meta_data.csv";
  const std::vector<CsvRow> rows = baseline_rows(table);
  check_complete(listed, rows, list.string());
  std::vector<CoreTask> tasks;
  for (const ListedTask& one : listed) {
    CoreTask& task = tasks.emplace_back(one.task);
    task.baseline = baseline_of(one, rows, table.string());
    task.items = read_items(bundle / "eval_data" / one.file, task.type);
    PythonRandom(kShuffleSeed).shuffle(task.items);
    if (max_per_task > 0 && std::ssize(task.items) > max_per_task)
      task.items.resize(static_cast<std::size_t>(max_per_task));
  }
  return tasks;
}

}  // namespace trireme::train
