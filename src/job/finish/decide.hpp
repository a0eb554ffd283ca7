#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "job/leg.hpp"
#include "scheduler/scheduler_job.hpp"

namespace trireme {

/// What a decision is made from, beside the journal.
struct FinishFacts {
  JobPlace place;     // of the leg that has ended; no job: the newest one's
  int srun_code = 0;  // of the launcher: no evidence by itself
  SchedulerJob job;
  std::string refusal;  // the last error in the job's output (refusal.hpp); "": not known
  std::vector<std::string> lost_nodes;           // of the job, that the scheduler has given up
  std::int64_t newest_checkpoint = -1;           // that lies in the run folder; -1: none
  std::optional<std::int64_t> max_failures = 3;  // in a row without progress; none: any number
  bool may_restart = false;  // the job keeps its nodes and can start another step
  double now_s = 0;          // Unix time
  std::vector<Verdict> start_verdicts;  // of a leg that left no line: its ranks waited for others
};

/// The index in `legs` of the leg that has ended; none: it left no line (a start that was lost, or
/// refused).
std::optional<std::size_t> ended_leg(const std::vector<Leg>& legs, const JobPlace& place);

/// What becomes of a run. A pure function, the only place where this is decided:
///
///   done     exit code 0 of the program
///   stop     STOP (exit 0); scancel; codes 1, 2, 3, 6; a later leg of this job took over;
///            max_failures legs in a row that did not help; no requeue allowed
///   requeue  all else: a leg that was asked to stop (time limit, preemption, a signal) and trained
///            longer than it took to start counts as a success, as does one that failed after it
///            committed a step
///   restart  the same, in the same job
///
/// Failures are counted over all jobs of the run, and anew for another binary or configuration.
Decision decide(const std::vector<Leg>& legs, const FinishFacts& facts);

}  // namespace trireme
