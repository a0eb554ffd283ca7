#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "job/run_folder.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {

/// The state of a run, from its directory (event log, newest line of metrics, configuration) and
/// from the scheduler's facts about its jobs. Unknown values are absent.
///
///   state              meaning
///   pending            the job waits in the queue and no job of the run has trained
///   running            the job has nodes
///   saved and waiting  an earlier attempt saved, and a job waits in the queue to resume
///   done, stopped, failed   how the run ended
///   cancelled          scancel ended the job or removed it from the queue
///   used up            the run can be resumed, but no job of it is left
///   lost               the attempt recorded no end, and the scheduler knows no running job
///   queued             pending, or saved and waiting, if no scheduler answers
///   new                the run directory exists, and nothing has begun
struct RunView {
  std::string state;
  std::int64_t leg = 0;
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

  /// Age of the last line of metrics in seconds; absent without one.
  std::optional<double> silent_s;

  [[nodiscard]] bool has_ended() const {
    return state == "done" || state == "stopped" || state == "failed" || state == "cancelled" ||
           state == "used up";
  }
};

/// Returns the state of a run. `now_s`: Unix time. `ask`: asks the scheduler about a job; without
/// it, only the directory is read. Throws Error(data) if the directory is not a run directory and
/// no job was submitted for it.
RunView view_run(const RunFolder& folder, double now_s, const SchedulerQuery& ask = {});

/// Returns one line for users: "running  attempt 2  job 17  step 1200/20000  loss 3.41 ...".
std::string to_line(const RunView& view);

/// Returns {"state", "leg", "job", "step", "steps", "loss", "tokens_per_s", "eta_s", "job_left_s",
/// "last_commit_step", "last_commit_age_s", "slowest_rank"}; unknown values are null.
std::string to_json_text(const RunView& view);

}  // namespace trireme
