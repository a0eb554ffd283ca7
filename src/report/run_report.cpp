#include "report/run_report.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/config_set.hpp"
#include "config/value.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/number.hpp"
#include "job/finish/decide.hpp"
#include "job/watch/run_view.hpp"
#include "model/config.hpp"
#include "report/run_json.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxJsonBytes = std::size_t{256} << 20;
constexpr double kSlowExcess = 0.05;  // a rank below is as fast as the others

using ConfigValues = std::map<std::string, std::string>;

/// Returns the content of a JSON file of the run; "" if it is missing.
std::string text_of(const std::filesystem::path& file) {
  std::error_code code;
  return std::filesystem::exists(file, code) ? read_file(file, kMaxJsonBytes) : "";
}

void read_configuration(const job::RunDirectory& folder, RunReport& run) {
  const std::string where = folder.config().string();
  std::error_code code;
  if (!std::filesystem::exists(folder.config(), code)) return;
  try {
    for (const config::EarlierValue& one :
         config::earlier_values(read_text(where, kMaxConfigBytes), where))
      run.config[one.key] = one.text;
  } catch (const Error& error) {
    run.notes.push_back(formatted("The configuration is unknown: {}", error.what()));
  }
}

std::optional<std::int64_t> parameters_in(const ConfigValues& values) {
  model::ModelConfig model;
  for (const Field& field : fields_of("model", model)) {
    const auto found = values.find(field.key);
    if (found != values.end() && !config::assign_text(field.value, found->second).empty())
      return std::nullopt;
  }
  if (model.hidden_size <= 0 || model.vocab_size <= 0 || model.head_dim <= 0) return std::nullopt;
  return model.num_parameters();
}

/// Sums over the steps that no later attempt repeated, and the energy of all steps.
void take_series(RunReport& run) {
  double seconds = 0;
  double tokens = 0;
  double mfu_s = 0;
  double mfu_of_s = 0;
  double energy_j = 0;
  double energy_tokens = 0;
  for (const StepLine& line : run.metrics.steps) {
    const double steps = run.goodput.steps_of(line);
    const double line_s = line.step_time_s * steps;
    if (std::isfinite(line.energy_j)) energy_j += line.energy_j * steps;
    if (!run.goodput.is_kept(line)) continue;
    if (std::isfinite(line.energy_j) && std::isfinite(line.tokens_per_s))
      energy_tokens += line.tokens_per_s * line_s;
    if (std::isfinite(line.loss)) {
      if (!run.loss_first) run.loss_first = line.loss;
      run.loss_last = line.loss;
    }
    run.steps = line.step;
    if (std::isfinite(line.tokens)) run.tokens = line.tokens;
    if (std::isfinite(line.tokens_per_s)) {
      seconds += line_s;
      tokens += line.tokens_per_s * line_s;
    }
    if (std::isfinite(line.mfu)) {
      mfu_s += line.mfu * line_s;
      mfu_of_s += line_s;
    }
  }
  if (seconds > 0) run.tokens_per_s = tokens / seconds;
  if (mfu_of_s > 0) run.mfu = mfu_s / mfu_of_s;
  if (energy_j > 0) {
    run.energy_j = energy_j;
    run.tokens_per_j = energy_tokens / energy_j;
  }
  for (const ValidationPoint& one : run.metrics.validations)
    if (std::isfinite(one.loss)) run.valid_loss = one.loss;
  for (const ValidationPoint& one : run.metrics.validations)
    if (std::isfinite(one.reward)) run.valid_reward = one.reward;
}

/// Finds the first and the last value of each metric of the task, in the steps that count.
void take_task_changes(RunReport& run) {
  for (const TaskSeries& series : run.metrics.task_series) {
    std::optional<TaskChange> change;
    for (std::size_t i = 0; i < series.values.size(); ++i) {
      const double value = series.values[i];
      if (!std::isfinite(value) || !run.goodput.is_kept(run.metrics.steps[i])) continue;
      if (!change) change = TaskChange{series.metric, value, value};
      change->last = value;
    }
    if (change) run.task_changes.push_back(*change);
  }
}

/// The lines in which one rank was the slowest.
struct SlowestLines {
  double wait_s = 0;  // time that the other ranks waited
  std::int64_t lines = 0;
  std::map<std::int32_t, std::int64_t> hosts;
  std::map<std::int32_t, std::int64_t> phases;
};

/// Returns the most frequent word; "" if it is unknown.
std::string most_frequent(const std::map<std::int32_t, std::int64_t>& counts,
                          const std::vector<std::string>& words) {
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->first < 0 ? std::string() : words[static_cast<std::size_t>(most->first)];
}

/// Finds the ranks for which the others wait. If one rank needs the time t + e for a step and the
/// others need t, then each of the others waits e, and the mean wait of n ranks is e (n - 1) / n.
/// The mean of the other ranks' excess is subtracted, so that ranks which are the slowest in turn
/// are not slow.
void find_slow_ranks(RunReport& run) {
  const auto ranks = static_cast<double>(run.ranks.value_or(1));
  if (ranks < 2) return;
  std::map<std::int32_t, SlowestLines> slowest;
  double lines = 0;
  double wait_s = 0;
  double busy_s = 0;
  for (const StepLine& line : run.metrics.steps) {
    if (line.slowest_rank < 0 || !std::isfinite(line.peer_wait_s)) continue;
    const double line_wait_s = line.peer_wait_s * ranks / (ranks - 1);
    SlowestLines& of_rank = slowest[line.slowest_rank];
    of_rank.wait_s += line_wait_s;
    ++of_rank.lines;
    ++of_rank.hosts[line.slowest_host];
    ++of_rank.phases[line.slowest_phase];
    lines += 1;
    wait_s += line_wait_s;
    busy_s += line.step_time_s - line_wait_s;
  }
  if (busy_s <= 0) return;
  const double by_chance = 1 / ranks + 2 * std::sqrt((1 / ranks) * (1 - 1 / ranks) / lines);
  for (const auto& [rank, of_rank] : slowest) {
    const double others_s = (wait_s - of_rank.wait_s) / (ranks - 1);
    const double excess = (of_rank.wait_s - others_s) / busy_s;
    if (excess < kSlowExcess || static_cast<double>(of_rank.lines) / lines < by_chance) continue;
    SlowRank slow{rank, most_frequent(of_rank.hosts, run.metrics.words), excess,
                  most_frequent(of_rank.phases, run.metrics.words)};
    const std::vector<std::string>& nodes = run.attempts.back().nodes;
    if (slow.host.empty() && nodes.size() == 1) slow.host = nodes.front();
    run.slow_ranks.push_back(std::move(slow));
  }
  std::sort(run.slow_ranks.begin(), run.slow_ranks.end(),
            [](const SlowRank& a, const SlowRank& b) { return a.excess > b.excess; });
}

std::string reason_of(const job::Attempt& attempt, bool is_running) {
  if (attempt.end && attempt.end->state == "done") return "done";
  const job::AttemptRequest* stop = attempt.stop_request();
  if (attempt.end && attempt.end->state == "stopped")
    return stop == nullptr ? "stopped on request" : formatted("stopped on request ({})", stop->by);
  if (attempt.end) return "failed";
  if (is_running) return "running";
  if (!attempt.start) return "failed before it started";
  return attempt.failure_reports.empty() ? "killed" : "failed";
}

AttemptSummary summary_of(const job::Attempt& attempt, const AttemptCourse& course,
                          bool is_running) {
  AttemptSummary summary;
  summary.job = attempt.id().job;
  summary.start = course.begin;
  summary.end = course.end;
  summary.from_step = course.from_step;
  summary.to_step = course.to_step;
  summary.reason = reason_of(attempt, is_running);
  if (attempt.start) {
    summary.ranks = attempt.start->ranks;
    summary.nodes = attempt.start->nodes;
  }
  if (attempt.end) summary.exit_code = attempt.end->exit_code;
  if (!attempt.end && attempt.decision) summary.exit_code = attempt.decision->exit_code;
  const bool is_whole = attempt.end && attempt.end->state != "failed";
  if (attempt.decision && !attempt.decision->root_cause.kind.empty()) {
    summary.root_cause = attempt.decision->root_cause;
  } else if (!attempt.failure_reports.empty()) {
    summary.root_cause = job::root_cause_of(attempt, 0);
  } else if (!is_whole && !is_running) {
    summary.root_cause = job::RootCause{-1, "", "killed", "no rank reported a failure"};
  }
  return summary;
}

void take_attempts(const std::vector<job::Attempt>& attempts, RunReport& run) {
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const bool is_last = i + 1 == attempts.size();
    run.attempts.push_back(
        summary_of(attempts[i], run.goodput.courses[i], is_last && run.state == "running"));
    if (attempts[i].start) run.ranks = attempts[i].start->ranks;
    for (const char* what : {"binary", "config", "data"}) {
      if (i == 0 || !attempts[i].start || !attempts[i - 1].start) continue;
      const auto& now = attempts[i].start->hashes;
      const auto& before = attempts[i - 1].start->hashes;
      if (now.contains(what) && before.contains(what) && now.at(what) != before.at(what))
        run.notes.push_back(formatted("Attempt {} has another {} than attempt {}.",
                                      attempts[i].number,
                                      std::string_view(what) == "config" ? "configuration"
                                      : std::string_view(what) == "data" ? "data set"
                                                                         : "version of the program",
                                      attempts[i - 1].number));
    }
  }
}

std::map<std::string, std::vector<scheduler::JobTimes>> ask_accounting(
    const std::vector<job::Attempt>& attempts, const AccountingQuery& accounting) {
  std::map<std::string, std::vector<scheduler::JobTimes>> jobs;
  if (!accounting) return jobs;
  for (const job::Attempt& attempt : attempts) {
    const std::string& job = attempt.id().job;
    if (!job.empty() && !jobs.contains(job)) jobs[job] = accounting(job);
  }
  return jobs;
}

/// Returns mfu_predicted of a layout.json; nullopt if the file is missing, damaged or older.
std::optional<double> predicted_mfu_in(const std::string& layout) {
  const Json json = parsed_or_null(layout, "layout.json");
  const auto found = json.find("mfu_predicted");
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

}  // namespace

std::optional<double> RunReport::goodput_share() const {
  const double total = goodput.wall.total();
  if (attempts.empty() || total <= 0) return std::nullopt;
  return goodput.wall[Activity::train] / total;
}

RunReport read_run(const std::filesystem::path& directory, double now_s,
                   const AccountingQuery& accounting) {
  const job::RunDirectory folder{directory};
  RunReport run;
  run.name = directory.string();
  run.state = job::view_run(folder, now_s).state;
  run.metrics = read_metrics_file(folder.metrics());
  const job::EventLogContent events = job::read_event_log(folder.event_log());
  const std::vector<job::SubmissionRecord> submissions = job::read_submissions(folder);
  const auto jobs = ask_accounting(events.attempts, accounting);
  run.goodput = account({events.attempts, run.metrics, submissions, jobs});
  read_configuration(folder, run);
  run.params = parameters_in(run.config);
  if (const auto steps = run.config.find("train.steps"); steps != run.config.end())
    run.steps_wanted = parse_integer(steps->second);
  take_attempts(events.attempts, run);
  take_series(run);
  take_task_changes(run);
  find_slow_ranks(run);
  if (!run.attempts.empty()) run.device_hours = run.goodput.device_s / 3600;
  run.rank_times = read_rank_times(folder.ranks());
  run.samples = read_samples(folder.samples());
  run.evaluations = read_evaluations(directory, run.notes);
  run.layout = text_of(folder.layout());
  run.mfu_predicted = predicted_mfu_in(run.layout);
  run.distribution = text_of(folder.distribution());
  if (run.attempts.empty())
    run.notes.emplace_back(
        run.state == job::kNoEventsState
            ? "There is no journal.jsonl, so attempts, goodput and failures are not known. Imported "
              "weights have none."
            : "No attempt of this run has begun yet.");
  if (run.metrics.damaged_lines > 0)
    run.notes.push_back(
        formatted("Damaged lines of metrics.jsonl were skipped: {}. The first is line {}.",
                  run.metrics.damaged_lines, run.metrics.first_damaged));
  if (events.valid_bytes < events.bytes && run.state != "running")
    run.notes.push_back(
        formatted("The last {} bytes of journal.jsonl are not complete events and were skipped.",
                  events.bytes - events.valid_bytes));
  run.notes.insert(run.notes.end(), run.goodput.notes.begin(), run.goodput.notes.end());
  return run;
}

void compare(RunReport& run, const RunReport& base) {
  for (const RunReport* one : {static_cast<const RunReport*>(&run), &base})
    if (!one->tokens_per_s || !one->ranks)
      fail(ErrorKind::data,
           "--compare: {} has no throughput yet. Both runs must have completed a step", one->name);
  run.speedup = *run.tokens_per_s / *base.tokens_per_s;
  run.efficiency =
      *run.speedup * static_cast<double>(*base.ranks) / static_cast<double>(*run.ranks);
}

}  // namespace trireme::report
