#include "job/watch/run_view.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "config/config_set.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/number.hpp"
#include "job/event_log.hpp"
#include "job/run_directory.hpp"

namespace trireme::job {
namespace {

/// Returns true if the attempt has ended. Until `job finish` has written a decision, an attempt
/// counts as running, even if its ranks have exited.
bool was_decided(const Attempt* attempt) {
  return attempt != nullptr &&
         (attempt->decision || (attempt->end && attempt->end->state == "done"));
}

/// Returns true if `job` ran `attempt` and was not requeued since then.
bool is_of(const scheduler::SchedulerJob& job, const Attempt* attempt) {
  return attempt != nullptr && job.id == attempt->id().job && job.restarts <= attempt->id().restart;
}

bool is_ended(const std::string& state) {
  return state == "done" || state == "stopped" || state == "failed";
}

void take(const scheduler::SchedulerJob& job, const Attempt* newest, RunJobs& jobs) {
  if (job.is_active() && is_of(job, newest) && was_decided(newest)) {
    jobs.is_closing = true;
  } else if (job.is_active()) {
    jobs.is_active = true;
    jobs.job = job.id;
    jobs.end_s = job.end_s;
  } else if (job.is_pending() && !jobs.is_active && !jobs.is_pending) {
    jobs.is_pending = true;
    jobs.job = job.id;
    jobs.reason = job.reason == "None" ? "" : job.reason;
  }
}

constexpr std::size_t kTailBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxRunConfigBytes = std::size_t{16} << 20;
constexpr double kNoEnd = std::numeric_limits<double>::infinity();
constexpr double kLost_s =
    60;  // an attempt without a lock and without an end event counts as lost after this time

std::string tail_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const auto size = static_cast<std::size_t>(in.tellg());
  const std::size_t begin = size > kTailBytes ? size - kTailBytes : 0;
  in.seekg(static_cast<std::streamoff>(begin));
  std::string text(size - begin, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

std::optional<double> number_of(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// Reads the newest complete line of a step.
void take_metrics(const RunDirectory& folder, double now_s, RunView& view) {
  const std::string text = tail_of(folder.metrics());
  std::size_t end = text.rfind('\n');
  while (end != std::string::npos) {
    const std::size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    try {
      const Json line = parse_json(std::string_view(text).substr(begin, end - begin), "metrics");
      if (line.contains("step") && line.contains("loss")) {
        view.step = json_get<std::int64_t>(line, "step", "metrics");
        view.loss = number_of(line, "loss");
        view.tokens_per_s = number_of(line, "tokens_per_s");
        if (const auto slowest = number_of(line, "slowest_rank"))
          view.slowest_rank = static_cast<std::int64_t>(*slowest);
        if (const auto time = number_of(line, "time")) view.silent_s = std::max(0.0, now_s - *time);
        const auto step_s = number_of(line, "step_time_s");
        if (step_s && view.steps)
          view.eta_s = *step_s * static_cast<double>(std::max<std::int64_t>(
                                     0, *view.steps - view.step.value_or(0)));
        return;
      }
    } catch (const Error&) {  // skip an incomplete line
    }
    end = before;
  }
}

void take_configuration(const RunDirectory& folder, RunView& view) {
  try {
    const std::string where = folder.config().string();
    for (const config::EarlierValue& value :
         config::earlier_values(read_text(where, kMaxRunConfigBytes), where)) {
      if (value.key == "train.steps") view.steps = parse_integer(value.text);
    }
  } catch (const Error&) {  // missing or damaged
  }
}

std::string state_of(const Attempt& attempt, const RunDirectory& folder, double now_s) {
  if (attempt.decision &&
      (attempt.decision->action == "requeue" || attempt.decision->action == "restart"))
    return "queued";
  if (attempt.end) return attempt.end->state;
  if (attempt.decision) return "failed";
  std::error_code code;
  const bool is_held = std::filesystem::exists(folder.root / "LOCK", code);
  return is_held || now_s - attempt.last_at < kLost_s ? "running" : "lost";
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::optional<RunJobs> ask_about(const Attempt* newest,
                                 const std::vector<SubmissionRecord>& submitted,
                                 const scheduler::SchedulerQuery& ask) {
  const std::string own = newest == nullptr ? "" : newest->id().job;
  const std::string last = submitted.empty() ? "" : submitted.back().job;
  std::vector<scheduler::SchedulerJob> all;
  bool is_of_submission = own == last;  // true: the newest attempt belongs to the newest submission
  std::vector<std::string> ids;
  if (!own.empty()) ids.push_back(own);
  if (!last.empty() && last != own) ids.push_back(last);
  if (ids.empty()) return std::nullopt;
  for (const std::string& id : ids) {
    const scheduler::SchedulerAnswer answer = ask(id);
    if (!answer.answered) return std::nullopt;
    for (const scheduler::SchedulerJob& job : answer.jobs) {
      is_of_submission = is_of_submission || (id == last && job.id == own);
      all.push_back(job);
    }
  }
  RunJobs jobs;
  for (const scheduler::SchedulerJob& job : all) take(job, newest, jobs);
  const bool is_later =
      newest != nullptr && !submitted.empty() && submitted.back().time > newest->began_at;
  jobs.is_another = jobs.is_pending && is_later && !is_of_submission;
  if (jobs.is_active || jobs.is_pending || jobs.is_closing) return jobs;
  for (const scheduler::SchedulerJob& job : all) {
    jobs.was_cancelled = jobs.was_cancelled || job.state == "CANCELLED";
    jobs.has_failed = jobs.has_failed || !job.state.empty();
  }
  return jobs;
}

std::string state_with_jobs(const std::string& state, const Attempt* newest, bool has_saved,
                            const RunJobs& jobs) {
  const bool is_cancelled = jobs.was_cancelled || (newest != nullptr && newest->decision &&
                                                   newest->decision->why == kWhyCancelled);
  if (jobs.is_active) return state == "lost" ? state : "running";
  if (jobs.is_pending) {
    if (is_ended(state) && !jobs.is_another)
      return state;  // the remaining dependent jobs end at once
    return has_saved && !is_ended(state) ? "saved and waiting" : "pending";
  }
  if (state == "done") return state;
  if (is_ended(state)) return is_cancelled ? "cancelled" : state;
  if (jobs.is_closing) return state;  // the job may still be requeued
  if (newest == nullptr) return is_cancelled ? "cancelled" : jobs.has_failed ? "failed" : "lost";
  if (state == "queued") return is_cancelled ? "cancelled" : "used up";
  return is_cancelled ? "cancelled" : "lost";
}

RunView view_run(const RunDirectory& folder, double now_s, const scheduler::SchedulerQuery& ask) {
  const EventLogContent event_log = read_event_log(folder.event_log());
  const std::vector<SubmissionRecord> submitted = read_submissions(folder);
  if (!folder.holds_run() && event_log.attempts.empty() && submitted.empty())
    fail(ErrorKind::data, "{} is not a run directory; a queued job creates it when the job begins",
         folder.root.string());
  RunView view;
  view.state = "new";
  take_configuration(folder, view);
  take_metrics(folder, now_s, view);
  if (const std::int64_t committed = committed_step(folder); committed >= 0)
    view.last_commit_step = committed;
  for (const Attempt& attempt : event_log.attempts) {
    if (attempt.committed >= 0)
      view.last_commit_age_s = std::max(0.0, now_s - attempt.committed_at);
  }
  const Attempt* attempt = event_log.attempts.empty() ? nullptr : &event_log.attempts.back();
  if (attempt != nullptr) {
    view.attempt = attempt->number;
    view.job = attempt->id().job;
    view.state = state_of(*attempt, folder, now_s);
  } else if (!submitted.empty()) {
    view.job = submitted.back().job;
    view.state = "queued";
  } else if (folder.holds_checkpoint()) {
    view.state = kNoEventsState;
  }
  double job_end = kNoEnd;
  if (attempt != nullptr && attempt->start) job_end = attempt->start->job_end.value_or(kNoEnd);
  if (const auto jobs = ask ? ask_about(attempt, submitted, ask) : std::nullopt) {
    view.state = state_with_jobs(view.state, attempt, view.last_commit_step.has_value(), *jobs);
    if (!jobs->job.empty()) view.job = jobs->job;
    job_end = jobs->end_s.value_or(job_end);
    view.reason = jobs->reason;
  }
  if (view.state == "running" && job_end < kNoEnd) view.job_left_s = job_end - now_s;
  if (view.state == "done") view.eta_s = 0;
  return view;
}

std::string loss_text(double loss) {
  return number_text(std::round(loss * 1e4) / 1e4);
}

std::string to_line(const RunView& view) {
  std::string line = formatted("{}  attempt {}", view.state, view.attempt);
  if (!view.job.empty()) line += "  job " + view.job;
  if (!view.reason.empty()) line += formatted("  ({})", view.reason);
  if (view.step) line += formatted("  step {}", *view.step);
  if (view.step && view.steps) line += formatted("/{}", *view.steps);
  if (view.loss) line += "  loss " + loss_text(*view.loss);
  if (view.tokens_per_s)
    line += formatted("  {} tok/s", static_cast<std::int64_t>(*view.tokens_per_s));
  if (view.state == "running") {
    if (view.eta_s) line += "  ETA " + format_duration(*view.eta_s);
    if (view.job_left_s)
      line += "  job ends in " + format_duration(std::max(0.0, *view.job_left_s));
    if (view.silent_s) line += formatted("  last line {} ago", format_duration(*view.silent_s));
  }
  if (view.last_commit_step) {
    line += formatted("  committed {}", *view.last_commit_step);
    if (view.last_commit_age_s)
      line += formatted(" {} ago", format_duration(*view.last_commit_age_s));
  }
  if (view.slowest_rank) line += formatted("  slowest rank {}", *view.slowest_rank);
  return line;
}

Json to_json(const RunView& view) {
  return Json{{"state", view.state},
              {"leg", view.attempt},
              {"job", view.job},
              {"step", or_null(view.step)},
              {"steps", or_null(view.steps)},
              {"loss", or_null(view.loss)},
              {"tokens_per_s", or_null(view.tokens_per_s)},
              {"eta_s", or_null(view.eta_s)},
              {"job_left_s", or_null(view.job_left_s)},
              {"last_commit_step", or_null(view.last_commit_step)},
              {"last_commit_age_s", or_null(view.last_commit_age_s)},
              {"slowest_rank", or_null(view.slowest_rank)}};
}

}  // namespace trireme::job
