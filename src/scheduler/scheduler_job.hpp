#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

/// The scheduler's description of a job. A scheduler with other words for `state` and `reason`
/// translates them into those of scheduler_job.cpp.
struct SchedulerJob {
  bool known = false;  // the scheduler knows the job
  std::string id;      // "84"; of a task of an array its own number
  std::string state;   // "RUNNING", "COMPLETING", ...
  std::string reason;  // "TimeLimit", "None", ...
  std::int64_t restarts = 0;
  bool may_requeue = true;
  bool was_preempted = false;
  std::optional<double> end_s;  // Unix time at which the scheduler ends the job, or ended it
  std::string error_file;       // standard error of a batch job; "": not known

  /// The job was cancelled: it leaves its nodes, and neither its time limit, nor a
  /// preemption, nor a lost node is why. `restart`: which of its starts asks.
  [[nodiscard]] bool is_cancelled(std::int64_t restart) const;

  /// It will start again without our doing.
  [[nodiscard]] bool is_requeued(std::int64_t restart) const;

  [[nodiscard]] bool is_at_time_limit() const;

  /// It waits in the queue.
  [[nodiscard]] bool is_pending() const { return state == "PENDING"; }

  /// It has nodes: it runs, starts, is suspended, or its processes have not all ended.
  [[nodiscard]] bool is_active() const;

  [[nodiscard]] bool is_out_of_memory() const { return state == "OUT_OF_MEMORY"; }
};

}  // namespace trireme
