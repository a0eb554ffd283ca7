#pragma once
#include <filesystem>
#include <string>

#include "job/finish/decide.hpp"
#include "job/run_directory.hpp"

namespace trireme::job {

/// Makes the restart decision after an attempt (decide.hpp) and writes it to the event log,
/// together with the failure reports of the ranks. If the attempt could not write its final
/// status.json, writes it. Holds the lock of the run directory meanwhile. Its lock number is higher
/// than that of the attempt and lower than that of any later attempt. Sets
/// `facts.newest_checkpoint` and `facts.now_s` itself.
///
/// If the attempt failed before it created the run directory, creates the directory, so that the
/// failure is counted. If the disk is full, retries for ten minutes, but not longer than until
/// shortly before the end of the job (job_end_from_environment). Then throws Error(resource).
/// Throws Error(usage) if the directory is not a run directory. With `dry_run`, changes nothing and
/// throws Error(data) if there is no run.
Decision finish_attempt(const RunDirectory& folder, FinishFacts facts, bool dry_run);

/// Reads TRIREME_MAX_FAILURES: a number, or "unlimited" (returns none). Returns 3 if the variable
/// is not set. An invalid value gives a warning and counts as 3, because a wrong variable must not
/// end a run.
std::optional<std::int64_t> max_failures_from_environment();

/// Returns the last error message in the output `file` of a job since the newest start of the job,
/// without the rank and the name of the program. Returns "" if there is none or the file cannot be
/// read. If a command refuses its options or data, only this file shows the reason: the command
/// writes nothing to the run directory.
std::string last_error_in(const std::filesystem::path& file);

}  // namespace trireme::job
