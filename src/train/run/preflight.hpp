#pragma once
#include "train/run/run_data.hpp"
#include "train/run/run_request.hpp"

/// Preflight checks: what can be refused before a run changes anything. They read the configuration
/// and do not change it.
namespace trireme {

/// Collective, before anything waits for all devices: checks devices, threads and libraries of all
/// ranks. Returns true if the devices of all ranks compute in bf16. Throws on all ranks what
/// `trireme doctor` calls an error.
[[nodiscard]] bool preflight_ranks(const RunRequest& run);

/// Checks the resolved configuration against the task's files, its frozen model and this machine's
/// memory; rank 0 warns of data sets that lose something at its length. Throws Error(usage),
/// Error(data) or Error(resource).
void preflight_run(const RunRequest& run, const RunData& data);

}  // namespace trireme
