#pragma once
#include "train/start/run_request.hpp"

namespace trireme::train {

/// Runs the whole training of a command. The caller has already read the arguments and the start
/// (read_start). Returns the exit code, which status.json also contains. Collective. An error on
/// any rank is thrown on all ranks (comm/agree.hpp).
///   config  the same object as run.config; only run_task changes this object
int run_task(const RunRequest& run, RunConfig& config);

}  // namespace trireme::train
