#include "train/control/peer_failure.hpp"

#include <unistd.h>

#include "comm/liveness/watchdog_stacks.hpp"
#include "comm/session.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "job/attempt.hpp"

namespace trireme::train {

namespace {

const char* kind_of(const comm::PeerLoss& loss, bool is_oom) {
  if (loss.hung) return "hang";
  if (loss.exit_code != exit_code(ErrorKind::comm)) return "error";
  return is_oom ? "oom" : "killed";
}

}  // namespace

void record_peer_failure(const job::RunDirectory& folder, job::EventLog& event_log,
                         const comm::LaunchInfo& launch, const comm::PeerLoss& loss,
                         std::int64_t step, bool memory_ran_out) noexcept {
  const bool mine = loss.rank == launch.rank;
  const std::string message =
      formatted("rank {} (host {}, pid {}): {}", loss.rank, loss.hostname, loss.pid, loss.reason);
  job::FailureReport failure_report{
      launch.rank, launch.hostname, mine ? "hang" : "peer", loss.exit_code, step, message};
  const bool is_oom = memory_ran_out && loss.hostname == launch.hostname;
  if (!mine) failure_report.lost = {loss.rank, loss.hostname, kind_of(loss, is_oom)};
  failure_report.time = unix_time_s();
  job::write_failure_report(folder, failure_report);
  if (launch.rank == 0 && event_log.may_write()) {
    try {
      event_log.failure_report(failure_report, event_log.attempt());
      event_log.end({"failed", loss.exit_code, step});
      job::write_status(folder, "failed", loss.exit_code, step);
    } catch (const std::exception& error) {
      log::error(error.what());
    }
  }
  if (loss.hung) write_own_stacks(folder, launch.rank, step + 1, message);
}

void record_stuck_start(const job::RunDirectory& folder,
                        const comm::StartFailure& failure) noexcept {
  try {
    folder.prepare();
  } catch (const std::exception&) {  // there is no run directory; the message is in the log
    return;
  }
  job::write_failure_report(folder, {failure.rank,
                                     failure.node,
                                     "peer",
                                     exit_code(ErrorKind::comm),
                                     /*step=*/0,
                                     failure.message,
                                     {failure.missing_rank, failure.missing_node, "hang"}});
}

void write_own_stacks(const job::RunDirectory& folder, int rank, std::int64_t step,
                      const std::string& reason) noexcept {
  if (step <= 0) {
    log::warn(formatted(
        "ignored a request for stacks ({}) before the first step: the run directory is not claimed yet",
        reason));
    return;
  }
  comm::write_stacks(
      folder.stacks() / job::rank_file(rank, ".txt"),
      formatted("pid {} on {}, in step {}: {}", ::getpid(), comm::this_hostname(), step, reason));
}

}  // namespace trireme::train
