#pragma once
#include <string>

#include "job/finish/decide.hpp"
#include "job/run_folder.hpp"

namespace trireme {

/// After a leg: decides (decide.hpp) with what its folder holds, and writes that into the journal,
/// with the verdicts that the ranks left; a leg that ended without a word gets its end in
/// status.json. Holds the folder's lock meanwhile, behind the leg and before any later one.
/// `facts.newest_checkpoint` and `now_s` are filled in here.
///
/// A start that was lost before it made the folder makes it here, or it would be forgotten. Where
/// nothing can be written (a full disk) it tries again for ten minutes, or until shortly before the
/// job's end (job_end_from_environment), then throws Error(resource).
/// Throws Error(usage) for a folder that is no run's. dry_run: nothing is touched; Error(data)
/// where no run is.
Decision finish_leg(const RunFolder& folder, FinishFacts facts, bool dry_run);

/// Of TRIREME_MAX_FAILURES: a number, or "unlimited" (none); 3 where it is not set. What is neither
/// is warned of and counts as 3: a run must not be lost for it.
std::optional<std::int64_t> max_failures_from_environment();

}  // namespace trireme
