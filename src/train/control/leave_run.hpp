#pragma once
#include <cstdint>
#include <string>

#include "comm/liveness/heartbeat.hpp"
#include "comm/session.hpp"
#include "comm/start_report.hpp"
#include "job/journal.hpp"
#include "job/run_folder.hpp"

namespace trireme {

/// Writes the records of this rank after another rank was lost, before it exits with
/// loss.exit_code: its failure report; on rank 0 the end of the attempt in the event log and
/// status.json ("failed"); after a hang also its stacks. Runs on the heartbeat's thread; never
/// throws. `step`: number of completed steps. `memory_ran_out`: true if the kernel killed a
/// process on this node since the start.
void leave_run(const RunFolder& folder, Journal& journal, const LaunchInfo& launch,
               const PeerLoss& loss, std::int64_t step, bool memory_ran_out) noexcept;

/// Writes the failure report of a start that timed out. `trireme job finish` reads the root cause
/// from it. Writes nothing into a directory that is not a run. Runs on the watching thread; never
/// throws.
void leave_stuck_start(const RunFolder& folder, const StartFailure& failure) noexcept;

/// Appends this rank's stacks to `stacks/rank-NNNNN.txt`.
void write_own_stacks(const RunFolder& folder, int rank, std::int64_t step,
                      const std::string& reason) noexcept;

}  // namespace trireme
