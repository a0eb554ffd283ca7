#include "train/control/leave_run.hpp"

#include <unistd.h>

#include "comm/liveness/watchdog_stacks.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "train/control/verdict.hpp"

namespace trireme {

void leave_run(const RunFolder& folder, const LaunchInfo& launch, const PeerLoss& loss,
               std::int64_t step) noexcept {
  const bool mine = loss.rank == launch.rank;
  const std::string message =
      formatted("rank {} (host {}, pid {}): {}", loss.rank, loss.hostname, loss.pid, loss.reason);
  write_verdict(folder, {launch.rank, launch.hostname, mine ? "hang" : "peer", loss.exit_code, step,
                         message});
  if (launch.rank == 0) {
    try {
      write_status(folder, "failed", loss.exit_code, step);
    } catch (const std::exception& error) {
      log::error(error.what());
    }
  }
  if (loss.hung) write_own_stacks(folder, launch.rank, step + 1, message);
}

void write_own_stacks(const RunFolder& folder, int rank, std::int64_t step,
                      const std::string& reason) noexcept {
  if (step <= 0) {
    log::warn(formatted(
        "asked for stacks ({}) before the first step: the run folder is not ours yet", reason));
    return;
  }
  write_stacks(folder.stacks() / rank_file(rank, ".txt"),
               formatted("pid {}, in step {}: {}", ::getpid(), step, reason));
}

}  // namespace trireme
