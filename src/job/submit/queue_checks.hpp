#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "job/submit/submission.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {

/// The status of the run for which a job is submitted; `state` comes from job/watch.
struct RunStatus {
  std::string state;            // "" if there is no run yet
  std::string job;              // newest job of the run
  std::int64_t steps = 0;       // train.steps of the new job
  std::int64_t steps_done = 0;  // completed steps of the run
};

/// Returns the reasons why a new job of this run would be useless: the run is in use, another job
/// of the run waits in the queue and --after does not name it, or the last step is done.
std::vector<SubmitProblem> run_problems(const SubmitRequest& request, const RunStatus& run);

/// Returns a problem for each job of --after that can never succeed, because Slurm's controller
/// does not know it or because it has ended without success. If the controller does not answer,
/// returns no problem, because sbatch reports that error.
std::vector<SubmitProblem> after_problems(const SubmitRequest& request,
                                          const scheduler::SchedulerQuery& ask);

}  // namespace trireme::job
