#include "train/control/launch.hpp"

#include <unistd.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/process/machine_memory.hpp"
#include "train/control/peer_failure.hpp"

namespace trireme::train {
namespace {

constexpr double kHeartbeatFirst_s = 10;

comm::HeartbeatOptions leaving_run(comm::HeartbeatOptions options, const comm::LaunchInfo& launch,
                                   const job::RunDirectory& folder,
                                   const std::shared_ptr<job::EventLog>& event_log,
                                   const std::shared_ptr<comm::Activity>& activity,
                                   const std::string& network) {
  options.on_loss = [launch, folder, event_log, activity, network,
                     kills = num_oom_kills()](const comm::PeerLoss& loss) {
    const int speaker = loss.rank == 0 ? 1 : 0;
    if (launch.rank == speaker && loss.exit_code == exit_code(ErrorKind::comm))
      log::error(network_advice(network));
    // The current step is not complete. Step 0: the run directory is not claimed yet.
    const std::int64_t step = activity->snapshot().step;
    if (step > 0)
      record_peer_failure(folder, *event_log, launch, loss, step - 1, num_oom_kills() > kills);
    log::flush();
    ::_exit(loss.exit_code);
  };
  return options;
}

}  // namespace

comm::CommOptions comm_options_with_heartbeat(double timeout_s) {
  comm::CommOptions options;
  options.timeout_s = timeout_s + kHeartbeatFirst_s;
  options.activity = std::make_shared<comm::Activity>();
  return options;
}

comm::HeartbeatOptions heartbeat_options(double timeout_s) {
  comm::HeartbeatOptions options;
  options.silence_s = std::min(options.silence_s, timeout_s);
  options.hang.most_s = timeout_s;
  return options;
}

std::string network_advice(const std::string& network) {
  return formatted(
      "if the system killed that rank (dmesg or sacct report out of memory), the network is not the cause. Otherwise check the network between the hosts: NCCL_SOCKET_IFNAME and OMPI_MCA_btl_tcp_if_include must name an interface that all hosts have, firewalls must allow its ports, and NCCL_DEBUG=INFO shows the chosen interface. Interfaces and settings now:{}",
      network);
}

RankWatch::RankWatch(comm::Communicator& world, const comm::LaunchInfo& launch,
                     const job::RunDirectory& folder, std::shared_ptr<job::EventLog> event_log,
                     std::shared_ptr<comm::Activity> activity, comm::HeartbeatOptions options,
                     const std::string& network)
    : heartbeat_(world, launch, activity,
                 leaving_run(std::move(options), launch, folder, event_log, activity, network)),
      stack_requests_([folder, activity, rank = launch.rank] {
        write_own_stacks(folder, rank, activity->snapshot().step, "SIGUSR1");
      }) {}

void RankWatch::announce_failure(int code) noexcept {
  heartbeat_.announce_failure(code, "an error, see above");
}

}  // namespace trireme::train
