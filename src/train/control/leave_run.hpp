#pragma once
#include <cstdint>
#include <string>

#include "comm/liveness/heartbeat.hpp"
#include "comm/session.hpp"
#include "comm/start_report.hpp"
#include "job/journal.hpp"
#include "job/run_folder.hpp"

namespace trireme {

/// What a rank leaves in the run folder when a peer is lost, before it ends with loss.exit_code:
/// its verdict, on rank 0 the leg's end in the journal and status.json ("failed"), and after a hang
/// the stacks of its threads. Called on the heartbeat's thread; never throws. `step`: done.
/// `memory_ran_out`: the kernel has killed for want of memory on this node since the start.
void leave_run(const RunFolder& folder, Journal& journal, const LaunchInfo& launch,
               const PeerLoss& loss, std::int64_t step, bool memory_ran_out) noexcept;

/// Leaves the verdict of a start that took too long, from which `trireme job finish` has its cause.
/// Nothing is left in a folder of something else. Called on the watching thread; never throws.
void leave_stuck_start(const RunFolder& folder, const StartFailure& failure) noexcept;

/// Appends this rank's stacks to `stacks/rank-NNNNN.txt`.
void write_own_stacks(const RunFolder& folder, int rank, std::int64_t step,
                      const std::string& reason) noexcept;

}  // namespace trireme
