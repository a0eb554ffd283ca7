#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/scheduler_job.hpp"

namespace trireme {

/// The state of a job as the controller reports it.
struct SchedulerAnswer {
  bool answered = false;  // false: there is no Slurm here, or its controller is silent
  std::vector<SchedulerJob>
      jobs;  // an array has one for each task; empty: the job is not known (any more)
};

/// Parses the output of `scontrol -o show job ID`, which ended with `code`.
SchedulerAnswer read_scheduler_answer(int code, std::string_view output);

/// Asks the controller about the job `id` ("17", "9_2"), for at most 10 s.
SchedulerAnswer ask_scheduler(const std::string& id);

/// A way to ask about a job: ask_scheduler, or a test's.
using SchedulerQuery = std::function<SchedulerAnswer(const std::string& id)>;

/// The id by which the controller knows this process's job: "9_2" for a task of an array, in which
/// SLURM_JOB_ID may be the id of the whole array. Returns "" outside a job.
std::string scheduler_id_from_environment();

/// Asks the controller when it ends this process's job: the limit may have been changed since the job
/// began. Returns Unix time; none outside a job, or if there is no answer.
std::optional<double> job_end_from_scheduler();

}  // namespace trireme
