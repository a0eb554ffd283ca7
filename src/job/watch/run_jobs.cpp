#include "job/watch/run_jobs.hpp"

namespace trireme {
namespace {

/// Returns true if the attempt is over. Until its job has decided, an attempt counts as running,
/// even if its ranks have exited.
bool was_decided(const Leg* leg) {
  return leg != nullptr && (leg->decision || (leg->end && leg->end->state == "done"));
}

/// Returns true if `job` ran the attempt `leg` and was not requeued since.
bool is_of(const SchedulerJob& job, const Leg* leg) {
  return leg != nullptr && job.id == leg->place().job && job.restarts <= leg->place().restart;
}

bool is_ended(const std::string& state) {
  return state == "done" || state == "stopped" || state == "failed";
}

void take(const SchedulerJob& job, const Leg* newest, RunJobs& jobs) {
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

}  // namespace

std::optional<RunJobs> ask_about(const Leg* newest, const std::vector<SubmissionRecord>& submitted,
                                 const SchedulerQuery& ask) {
  const std::string own = newest == nullptr ? "" : newest->place().job;
  const std::string last = submitted.empty() ? "" : submitted.back().job;
  std::vector<SchedulerJob> all;
  bool is_of_submission = own == last;  // the newest attempt belongs to the newest submission
  std::vector<std::string> ids;
  if (!own.empty()) ids.push_back(own);
  if (!last.empty() && last != own) ids.push_back(last);
  if (ids.empty()) return std::nullopt;
  for (const std::string& id : ids) {
    const SchedulerAnswer answer = ask(id);
    if (!answer.answered) return std::nullopt;
    for (const SchedulerJob& job : answer.jobs) {
      is_of_submission = is_of_submission || (id == last && job.id == own);
      all.push_back(job);
    }
  }
  RunJobs jobs;
  for (const SchedulerJob& job : all) take(job, newest, jobs);
  const bool is_later =
      newest != nullptr && !submitted.empty() && submitted.back().time > newest->began_at;
  jobs.is_another = jobs.is_pending && is_later && !is_of_submission;
  if (jobs.is_active || jobs.is_pending || jobs.is_closing) return jobs;
  for (const SchedulerJob& job : all) {
    jobs.was_cancelled = jobs.was_cancelled || job.state == "CANCELLED";
    jobs.has_failed = jobs.has_failed || !job.state.empty();
  }
  return jobs;
}

std::string state_with_jobs(const std::string& state, const Leg* newest, bool has_saved,
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
  if (jobs.is_closing) return state;  // its job may still be requeued
  if (newest == nullptr) return is_cancelled ? "cancelled" : jobs.has_failed ? "failed" : "lost";
  if (state == "queued") return is_cancelled ? "cancelled" : "used up";
  return is_cancelled ? "cancelled" : "lost";
}

}  // namespace trireme
