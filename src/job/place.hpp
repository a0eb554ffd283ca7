#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

/// Identifies an attempt among those of its job. Attempts may overlap for a moment: a later attempt
/// takes the lock from an earlier one (checkpoint/disk/run_lock.hpp).
struct JobPlace {
  std::string job;           // id of the scheduler; "" outside a job
  std::int64_t restart = 0;  // number of requeues of the job
  std::int64_t attempt = 0;  // number of starts of the processes since the last requeue

  /// Reads the scheduler's variables (scheduler/scheduler.hpp) and TRIREME_ATTEMPT.
  static JobPlace from_environment();

  /// Returns a number that grows by two from each attempt of a job to the next. `job finish` takes
  /// the lock with the number between an attempt and the next.
  [[nodiscard]] std::uint64_t order() const;

  friend bool operator==(const JobPlace&, const JobPlace&) = default;
};

/// Returns the Unix time at which the scheduler ends the job, from its environment variable; none
/// if the variable is not set or is not a number above 0.
std::optional<double> job_end_from_environment();

}  // namespace trireme
