#pragma once
#include <optional>
#include <string>
#include <vector>

#include "job/attempt.hpp"
#include "job/run_folder.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {

/// The scheduler's facts about the jobs of a run: its newest attempt, and its newest submission.
struct RunJobs {
  bool is_active = false;       // a job has nodes, and its attempt runs or is about to begin
  bool is_closing = false;      // the newest attempt is decided, and its job still has its nodes
  bool is_pending = false;      // a job waits in the queue
  bool is_another = false;      // that job was submitted after the newest attempt began
  bool was_cancelled = false;   // no job is left, and scancel ended the last one
  bool has_failed = false;      // no job is left, and the last one ended before it began
  std::string job;              // the job that is active or waits; "": none
  std::string reason;           // the scheduler's reason why it waits
  std::optional<double> end_s;  // Unix time at which the scheduler ends the active job
};

/// Asks the scheduler. `newest`: the run's newest attempt, may be null. Returns none if the
/// scheduler does not answer, or if the run has no job.
std::optional<RunJobs> ask_about(const Leg* newest, const std::vector<SubmissionRecord>& submitted,
                                 const SchedulerQuery& ask);

/// Returns the state of a run (run_view.hpp). `state`: the state according to its directory alone.
/// `has_saved`: the run has committed a checkpoint.
std::string state_with_jobs(const std::string& state, const Leg* newest, bool has_saved,
                            const RunJobs& jobs);

}  // namespace trireme
