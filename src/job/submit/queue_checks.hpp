#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "job/submit/submission.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {

/// The state (job/watch) of the run that a job is submitted for, where a new job can conflict with it.
struct RunStanding {
  std::string state;            // "" if there is no run yet
  std::string job;              // its newest job
  std::int64_t steps = 0;       // train.steps of the job to come
  std::int64_t steps_done = 0;  // by the run so far
};

/// Returns the reason why a new job of this run would have nothing to do: the run is in use, another job
/// of it waits and is not among the jobs of --after, or its last step is done.
std::vector<SubmitProblem> run_problems(const SubmitRequest& request, const RunStanding& run);

/// Returns the jobs of --after that the new job would wait for in vain: unknown to the controller, or
/// ended otherwise than with success. A controller that does not answer is no problem here: sbatch
/// needs it as well.
std::vector<SubmitProblem> after_problems(const SubmitRequest& request, const SchedulerQuery& ask);

}  // namespace trireme
