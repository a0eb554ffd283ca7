#include "job/watch/run_list.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/number.hpp"
#include "job/run_directory.hpp"

namespace trireme::job {
namespace {

namespace fs = std::filesystem;

constexpr int kLevels = 3;
constexpr const char* kUnreadableState = "unreadable";

bool is_run(const fs::path& directory) {
  const RunDirectory run{directory};
  std::error_code code;
  return run.holds_run() || fs::exists(run.event_log(), code) || fs::exists(run.submit(), code);
}

/// Adds the runs of a directory and of `levels` levels below it to `found`. A subdirectory that
/// cannot be read is skipped.
void find_runs(const fs::path& directory, int levels, std::set<fs::path>& found) {
  if (is_run(directory)) {
    found.insert(directory);
    return;
  }
  if (levels == 0) return;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, code))
    if (entry.is_directory(code)) find_runs(entry.path(), levels - 1, found);
}

ListedRun listed(const fs::path& directory, double now_s, const scheduler::SchedulerQuery& ask) {
  ListedRun run{directory, {}, ""};
  const auto error = comm::capture([&] {
    run.view = view_run(RunDirectory{directory}, now_s);
    if (ask && run.view.state != "done") run.view = view_run(RunDirectory{directory}, now_s, ask);
  });
  if (error) {
    run.view = {};
    run.view.state = kUnreadableState;
    run.error = error->what();
  }
  return run;
}

constexpr std::size_t kNumColumns = 8;
using Row = std::array<std::string, kNumColumns>;

std::string step_text(const RunView& view) {
  if (!view.step) return "-";
  return view.steps ? formatted("{}/{}", *view.step, *view.steps) : cat(*view.step);
}

Row row_of(const ListedRun& run) {
  const RunView& view = run.view;
  const bool is_running = view.state == "running";
  return {
      run.directory.string(),
      view.state,
      step_text(view),
      view.loss ? loss_text(*view.loss) : "-",
      is_running && view.tokens_per_s ? cat(static_cast<std::int64_t>(*view.tokens_per_s)) : "-",
      is_running && view.eta_s ? format_duration(*view.eta_s) : "-",
      view.last_commit_step ? cat(*view.last_commit_step) : "-",
      view.job.empty() ? "-" : view.job};
}

}  // namespace

std::vector<ListedRun> list_runs(const std::vector<std::string>& directories, double now_s,
                                 const scheduler::SchedulerQuery& ask) {
  std::set<fs::path> found;
  for (const std::string& directory : directories) {
    std::error_code code;
    fs::directory_iterator(directory, code);
    if (code)
      fail(ErrorKind::data, "{}: {}. Give a directory with run directories", directory,
           code.message());
    find_runs(directory, kLevels, found);
  }
  std::vector<ListedRun> runs;
  for (const fs::path& directory : found) runs.push_back(listed(directory, now_s, ask));
  return runs;
}

std::string to_table(const std::vector<ListedRun>& runs) {
  std::vector<Row> rows{{"run", "state", "step", "loss", "tok/s", "ETA", "checkpoint", "job"}};
  for (const ListedRun& run : runs) rows.push_back(row_of(run));
  std::array<std::size_t, kNumColumns> widths{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < kNumColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < kNumColumns; ++i)
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  for (const ListedRun& run : runs)
    if (!run.error.empty()) text += formatted("{}: {}\n", run.directory.string(), run.error);
  return text;
}

Json to_json(const std::vector<ListedRun>& runs) {
  Json list = Json::array();
  for (const ListedRun& run : runs) {
    Json one = to_json(run.view);
    one["run"] = run.directory.string();
    if (!run.error.empty()) one["error"] = run.error;
    list.push_back(std::move(one));
  }
  return Json{{"runs", std::move(list)}};
}

}  // namespace trireme::job
