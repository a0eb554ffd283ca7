#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

/// The scheduler's description of a job. `state` and `reason` use the words of Slurm; other
/// schedulers must translate theirs.
struct SchedulerJob {
  bool known = false;  // the scheduler knows the job
  std::string id;      // "84"; a task of an array has its own number
  std::string state;   // "RUNNING", "COMPLETING", ...
  std::string reason;  // "TimeLimit", "None", ...
  std::int64_t restarts = 0;
  bool may_requeue = true;
  bool was_preempted = false;
  std::optional<double> end_s;  // Unix time at which the scheduler ends or ended the job
  std::string error_file;       // standard error file of a batch job; "": unknown

  /// Returns true if the job was cancelled: it leaves its nodes, and the reason is neither its time
  /// limit, nor a preemption, nor a lost node. `restart`: number of requeues of the caller's
  /// attempt.
  [[nodiscard]] bool is_cancelled(std::int64_t restart) const;

  /// Returns true if the scheduler requeues the job by itself. `restart`: as in is_cancelled().
  [[nodiscard]] bool is_requeued(std::int64_t restart) const;

  [[nodiscard]] bool is_at_time_limit() const;

  /// Returns true if the job waits in the queue.
  [[nodiscard]] bool is_pending() const { return state == "PENDING"; }

  /// Returns true if the job has nodes: it runs, starts, is suspended, or some processes still run.
  [[nodiscard]] bool is_active() const;

  [[nodiscard]] bool is_out_of_memory() const { return state == "OUT_OF_MEMORY"; }
};

}  // namespace trireme
