#pragma once
#include "train/start/run_request.hpp"

namespace trireme {

/// Collective: trains, from opened data to the last checkpoint; a command after its arguments and
/// its start (read_start) are read. Returns the exit code and leaves status.json. Whatever is wrong
/// on any rank is thrown on all (comm/agree.hpp).
///   config  the same object as run.config; only this function assigns it, until it is whole
int run_task(const RunRequest& run, RunConfig& config);

}  // namespace trireme
