#pragma once
#include <filesystem>
#include <string>

#include "job/finish/decide.hpp"
#include "job/run_directory.hpp"

namespace trireme::job {

/// Decides (decide.hpp) about a run after an attempt, and writes the decision and the failure
/// reports of the ranks to the event log. Writes status.json if the attempt could not. Holds the
/// lock of the run directory meanwhile; the lock order is after the attempt and before any later
/// attempt. Fills in `facts.newest_checkpoint` and `now_s`.
///
/// Creates the run directory if the attempt failed before it could, so that the failure counts. If
/// the disk is full, retries for ten minutes, or until shortly before the end of the job
/// (job_end_from_environment), then throws Error(resource). Throws Error(usage) if the directory is
/// not a run directory. With `dry_run`, changes nothing and throws Error(data) if there is no run.
Decision finish_attempt(const RunDirectory& folder, FinishFacts facts, bool dry_run);

/// Reads TRIREME_MAX_FAILURES: a number, or "unlimited" (none); 3 if it is not set. An invalid
/// value gives a warning and counts as 3, because a run must not be lost for it.
std::optional<std::int64_t> max_failures_from_environment();

/// Returns the last error that a command printed into the output `file` of a job since the job's newest
/// start, without the rank and the program's name; "" if there is none or the file cannot be read.
/// A command that refuses its options or data leaves nothing in the run directory that says why.
std::string last_error_in(const std::filesystem::path& file);

}  // namespace trireme::job
