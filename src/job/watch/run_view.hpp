#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/files/json.hpp"
#include "job/attempt.hpp"
#include "job/run_directory.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {

/// The state of a run directory with checkpoints and without an event log.
inline constexpr const char* kNoEventsState = "no events";

/// The scheduler's facts about two jobs of a run: the job of the newest attempt, and the newest
/// submitted job.
struct RunJobs {
  bool is_active = false;      // a job has nodes, and its attempt runs or will begin soon
  bool is_closing = false;     // the newest attempt has a decision, but its job still has its nodes
  bool is_pending = false;     // a job waits in the queue
  bool is_another = false;     // the waiting job was submitted after the newest attempt began
  bool was_cancelled = false;  // no job runs or waits, and scancel ended the last job
  bool has_failed = false;  // no job runs or waits, and the last job ended before its attempt began
  std::string job;          // id of the active or waiting job; "": none
  std::string reason;       // the scheduler's reason why it waits
  std::optional<double> end_s;  // Unix time at which the scheduler ends the active job
};

/// Asks the scheduler about the jobs of a run. `newest` is the newest attempt of the run; null if
/// there is none. Returns none if the scheduler does not answer, or if the run has no job.
std::optional<RunJobs> ask_about(const Attempt* newest,
                                 const std::vector<SubmissionRecord>& submitted,
                                 const scheduler::SchedulerQuery& ask);

/// Returns the state of a run (see RunView). `state` is the state from the run directory alone.
/// `has_saved` is true if the run has committed a checkpoint.
std::string state_with_jobs(const std::string& state, const Attempt* newest, bool has_saved,
                            const RunJobs& jobs);

/// The state of a run, from its directory (event log, newest line of metrics, configuration) and
/// from the scheduler's facts about its jobs. Unknown values are absent.
///
///   state              meaning
///   pending            the job waits in the queue and no job of the run has trained
///   running            the job has nodes
///   saved and waiting  an earlier attempt saved, and a job waits in the queue to resume
///   done, stopped, failed   how the run ended
///   cancelled          scancel ended the job or removed it from the queue
///   used up            the run can be resumed, but no job of the run is queued or running
///   lost               the attempt recorded no end, and the scheduler knows no running job
///   queued             pending, or saved and waiting, if no scheduler answers
///   new                the run directory exists, and nothing has begun
///   no events          there are checkpoints, but no event log: imported weights, or journal.jsonl
///                      was deleted
struct RunView {
  std::string state;
  std::int64_t attempt = 0;
  std::string job;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> steps;
  std::optional<double> loss;
  std::optional<double> tokens_per_s;
  std::optional<double> eta_s;       // seconds to the last step at the current step time
  std::optional<double> job_left_s;  // until the scheduler ends the job
  std::optional<std::int64_t> last_commit_step;
  std::optional<double> last_commit_age_s;
  std::optional<std::int64_t> slowest_rank;  // rank for which the others waited

  /// Why the scheduler keeps the job waiting: "Resources", "Priority", ...; "" if no job waits.
  std::string reason;

  /// Age of the last line of metrics in seconds; absent if there is no line.
  std::optional<double> silent_s;

  [[nodiscard]] bool has_ended() const {
    return state == "done" || state == "stopped" || state == "failed" || state == "cancelled" ||
           state == "used up" || state == kNoEventsState;
  }
};

/// Returns the state of a run. `now_s` is the current Unix time. `ask` asks the scheduler about a
/// job; if it is empty, only the directory is read. Throws Error(data) if the directory is not a
/// run directory and no job was submitted for it.
RunView view_run(const RunDirectory& folder, double now_s,
                 const scheduler::SchedulerQuery& ask = {});

/// Returns one line for users: "running  attempt 2  job 17  step 1200/20000  loss 3.41 ...".
std::string to_line(const RunView& view);

/// Returns a loss with up to four digits after the point.
std::string loss_text(double loss);

/// Returns {"state", "leg", "job", "step", "steps", "loss", "tokens_per_s", "eta_s", "job_left_s",
/// "last_commit_step", "last_commit_age_s", "slowest_rank"}; unknown values are null.
Json to_json(const RunView& view);

}  // namespace trireme::job
