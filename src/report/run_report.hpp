#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/evaluations.hpp"
#include "report/goodput.hpp"
#include "report/metrics_file.hpp"
#include "report/rank_times.hpp"
#include "report/sample_file.hpp"

namespace trireme::report {

/// A rank for which the other ranks waited.
struct SlowRank {
  std::int64_t rank = 0;
  std::string host;   // "" if unknown
  double excess = 0;  // extra time of a step, relative to a step without waits
  std::string phase;  // "" if unknown
};

struct AttemptSummary {
  std::string job;  // "" outside a job
  double start = 0;
  double end = 0;
  std::int64_t from_step = 0;
  std::int64_t to_step = 0;
  std::string reason;  // why it ended, in plain words
  std::optional<int> exit_code;
  std::optional<job::RootCause> root_cause;
  std::int64_t ranks = 0;
  std::vector<std::string> nodes;
};

/// The first and the last known value of a metric of the task.
struct TaskChange {
  TaskMetric metric;
  double first = 0;
  double last = 0;
};

/// All facts about one run that its report shows. Unknown values are absent.
struct RunReport {
  std::string name;  // the path as the user gave it
  std::string state;
  std::optional<std::int64_t> ranks;
  std::optional<std::int64_t> params;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> steps_wanted;  // train.steps
  std::optional<double> tokens;
  std::optional<double> loss_first;
  std::optional<double> loss_last;
  std::optional<double> valid_loss;
  std::optional<double> valid_reward;  // only rl
  std::optional<double> tokens_per_s;
  std::optional<double> mfu;
  std::optional<double> mfu_predicted;  // from layout.json
  std::optional<double> device_hours;
  std::optional<double> energy_j;
  std::optional<double> tokens_per_j;  // tokens of the steps with a known energy / this energy
  std::optional<double> speedup;       // over the run of --compare
  std::optional<double> efficiency;    // speedup / (ranks / ranks of that run)
  Goodput goodput;
  MetricsFile metrics;
  std::vector<AttemptSummary> attempts;
  std::vector<TaskChange> task_changes;
  std::vector<SlowRank> slow_ranks;
  std::vector<RankTimes> rank_times;          // from ranks.jsonl
  std::vector<Sample> samples;                // from samples.jsonl
  std::vector<Evaluation> evaluations;        // the report card
  std::map<std::string, std::string> config;  // config.toml: "optim.lr" -> "0.0003"
  std::string layout;                         // text of layout.json; "" if it is missing
  std::string distribution;                   // text of distribution.json; "" if it is missing
  std::vector<std::string> notes;

  /// Returns the share of class train in the total; none without attempts.
  [[nodiscard]] std::optional<double> goodput_share() const;
};

/// Asks for the accounting record of a job: Scheduler::times, or a function of a test.
using AccountingQuery = std::function<std::vector<scheduler::JobTimes>(const std::string& job)>;

/// Reads the files of one run. `now_s` is the current Unix time. Throws Error(data) if the
/// directory is not a run directory.
RunReport read_run(const std::filesystem::path& directory, double now_s,
                   const AccountingQuery& accounting = {});

/// Sets speedup and efficiency of `run` relative to `base`. Throws Error(data) if one of the two
/// runs has no tokens_per_s.
void compare(RunReport& run, const RunReport& base);

}  // namespace trireme::report
