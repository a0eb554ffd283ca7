#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

/// Where a leg stands among those of its job, which may overlap for a moment: a later one fences the
/// earlier (checkpoint/disk/run_lock.hpp).
struct JobPlace {
  std::string job;           // of the scheduler, "" outside one
  std::int64_t restart = 0;  // how often the job was put back in the queue
  std::int64_t attempt = 0;  // steps that the job has started since

  /// Reads the scheduler's variables (scheduler/scheduler.hpp) and TRIREME_ATTEMPT.
  static JobPlace from_environment();

  /// Grows from each leg of a job to its next, by two: who decides about a leg stands behind it.
  [[nodiscard]] std::uint64_t order() const;

  friend bool operator==(const JobPlace&, const JobPlace&) = default;
};

/// Returns the Unix time at which the scheduler ends the job, by its variable; none: not there, or no
/// number above 0.
std::optional<double> job_end_from_environment();

}  // namespace trireme
