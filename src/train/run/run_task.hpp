#pragma once
#include "train/start/run_request.hpp"

namespace trireme::train {

/// Runs the whole training of a command whose arguments and start (read_start) have been read.
/// Returns the exit code; status.json holds it, too. Collective; an error on any rank is thrown on
/// all ranks (comm/agree.hpp).
///   config  the same object as run.config; only this function changes it while it is resolved
int run_task(const RunRequest& run, RunConfig& config);

}  // namespace trireme::train
