#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "job/submit/submission.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {

/// The state (job/watch) of the run for which a job is submitted.
struct RunStatus {
  std::string state;            // "" if there is no run yet
  std::string job;              // newest job of the run
  std::int64_t steps = 0;       // train.steps of the new job
  std::int64_t steps_done = 0;  // completed steps of the run
};

/// Returns the reason why a new job of this run is useless: the run is in use, another job of the
/// run waits and is not among the jobs of --after, or the last step is done.
std::vector<SubmitProblem> run_problems(const SubmitRequest& request, const RunStatus& run);

/// Returns a problem for each job of --after that can never succeed: it is unknown to the
/// controller, or has ended without success. A controller that does not answer is no problem here,
/// because sbatch reports it.
std::vector<SubmitProblem> after_problems(const SubmitRequest& request,
                                          const scheduler::SchedulerQuery& ask);

}  // namespace trireme::job
