#pragma once
#include <cstdint>
#include <string>

#include "comm/liveness/heartbeat.hpp"
#include "comm/session.hpp"
#include "comm/start_report.hpp"
#include "job/event_log.hpp"
#include "job/run_directory.hpp"

namespace trireme::train {

/// Writes the records of this rank after another rank was lost, before it exits with
/// loss.exit_code: its failure report; on rank 0 the end of the attempt in the event log and
/// status.json ("failed"); after a hang also its stacks. Runs on the heartbeat's thread; never
/// throws. `step`: number of completed steps. `memory_ran_out`: true if the kernel killed a
/// process on this node since the start.
void record_peer_failure(const job::RunDirectory& folder, job::EventLog& event_log,
                         const comm::LaunchInfo& launch, const comm::PeerLoss& loss,
                         std::int64_t step, bool memory_ran_out) noexcept;

/// Writes the failure report of a start that timed out. `trireme job finish` reads the root cause
/// from it. Writes nothing into a directory that is not a run. Runs on the watching thread; never
/// throws.
void record_stuck_start(const job::RunDirectory& folder,
                        const comm::StartFailure& failure) noexcept;

/// Appends this rank's stacks to `stacks/rank-NNNNN.txt`.
void write_own_stacks(const job::RunDirectory& folder, int rank, std::int64_t step,
                      const std::string& reason) noexcept;

}  // namespace trireme::train
