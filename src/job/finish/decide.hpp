#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "job/attempt.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {

/// The facts that a decision uses in addition to the event log.
struct FinishFacts {
  AttemptId attempt_id;  // the attempt that has ended; without a job: the newest attempt
  int srun_code = 0;  // exit code of the launcher, which alone does not show why an attempt ended
  scheduler::SchedulerJob job;
  std::string refusal;  // last error in the output of the job (last_error_in()); "": unknown
  std::vector<std::string> lost_nodes;  // nodes of the job that the scheduler marks as failed
  std::int64_t newest_checkpoint = -1;  // newest step in the run directory; -1: none
  // maximum attempts in a row without progress; none: no limit
  std::optional<std::int64_t> max_failures = 3;
  bool may_restart = false;                  // the job can keep its nodes and restart the processes
  double now_s = 0;                          // Unix time
  std::vector<FailureReport> start_reports;  // failure reports of an attempt that has no events
};

/// Returns the index of the attempt `attempt_id` in `attempts`. Returns none if the attempt wrote no
/// event, because its start failed or was refused.
std::optional<std::size_t> ended_attempt(const std::vector<Attempt>& attempts,
                                         const AttemptId& attempt_id);

/// Decides whether a run is done, stops, is requeued or restarts. A pure function that contains all
/// rules:
///
///   done     exit code 0 of the program
///   stop     STOP (exit 0); scancel; codes 1, 2, 3, 6; a later attempt of this job took over;
///            max_failures attempts in a row without progress; requeue not allowed
///   requeue  all other cases
///   restart  like requeue, but in the same job
///
/// An attempt made progress if it stopped on request (time limit, preemption, a signal) and trained
/// longer than its start took, or if it failed after it committed a step. Failures are counted over
/// all jobs of the run. The count restarts at 0 for another binary or configuration.
Decision decide(const std::vector<Attempt>& attempts, const FinishFacts& facts);

/// Returns the root cause of the failure of an attempt, from the failure reports of its ranks. The
/// order of priority is: a rank that threw an error, a rank that hung, a rank that its peers lost.
/// If a rank failed only because it lost a peer, it is never the cause. `srun_code` is the exit
/// code of the launcher; it is used if there are no failure reports.
RootCause root_cause_of(const Attempt& attempt, int srun_code);

}  // namespace trireme::job
