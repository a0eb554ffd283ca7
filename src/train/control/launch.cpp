#include "train/control/launch.hpp"

#include <unistd.h>

#include <algorithm>

#include "core/log.hpp"
#include "train/control/leave_run.hpp"

namespace trireme {
namespace {

constexpr double kHeartbeatFirst_s = 10;

HeartbeatOptions leaving_run(HeartbeatOptions options, const LaunchInfo& launch,
                             const RunFolder& folder, const std::shared_ptr<Activity>& activity) {
  options.on_loss = [launch, folder, activity](const PeerLoss& loss) {
    // The step under way is not done; 0: the run folder is not ours yet.
    const std::int64_t step = activity->snapshot().step;
    if (step > 0) leave_run(folder, launch, loss, step - 1);
    log::flush();
    ::_exit(loss.exit_code);
  };
  return options;
}

}  // namespace

CommOptions watched_comm(double timeout_s) {
  CommOptions options;
  options.timeout_s = timeout_s + kHeartbeatFirst_s;
  options.activity = std::make_shared<Activity>();
  return options;
}

HeartbeatOptions watch_options(double timeout_s) {
  HeartbeatOptions options;
  options.silence_s = std::min(options.silence_s, timeout_s);
  options.hang.most_s = timeout_s;
  return options;
}

RankWatch::RankWatch(Communicator& world, const LaunchInfo& launch, const RunFolder& folder,
                     std::shared_ptr<Activity> activity, HeartbeatOptions options)
    : heartbeat_(world, launch, activity,
                 leaving_run(std::move(options), launch, folder, activity)),
      stack_requests_([folder, activity, rank = launch.rank] {
        write_own_stacks(folder, rank, activity->snapshot().step, "SIGUSR1");
      }) {}

void RankWatch::announce_failure(int code) noexcept {
  heartbeat_.announce_failure(code, "an error, see above");
}

}  // namespace trireme
