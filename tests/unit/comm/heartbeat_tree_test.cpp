/// Tests heartbeats of several nodes, where leaders pass messages between rank 0 and their node.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/liveness/heartbeat.hpp"
#include "comm/thread/thread_world.hpp"

namespace trireme::testing {
namespace {

/// Three nodes: ranks 0 to 2, rank 3, and ranks 4 and 5.
comm::LaunchInfo launch_of(int rank) {
  constexpr std::array<int, 6> kNode{0, 0, 0, 1, 2, 2};
  constexpr std::array<int, 6> kLocalRank{0, 1, 2, 0, 0, 1};
  comm::LaunchInfo launch;
  launch.rank = rank;
  launch.size = kNode.size();
  launch.node = kNode.at(static_cast<std::size_t>(rank));
  launch.local_rank = kLocalRank.at(static_cast<std::size_t>(rank));
  launch.num_nodes = 3;
  launch.hostname = "n" + std::to_string(launch.node);
  return launch;
}

comm::HeartbeatOptions loss_is_failure() {
  comm::HeartbeatOptions options;
  options.interval_s = 0.02;
  options.on_loss = [](const comm::PeerLoss& loss) { ADD_FAILURE() << loss.reason; };
  return options;
}

TEST(HeartbeatTree, RanksOfSeveralNodesLeaveInPeaceInAnyOrder) {
  for (const int step : {1, 5}) {  // ascending and descending
    comm::run_ranks(6, [&](comm::Communicator& world) {
      comm::Heartbeat heartbeat(world, launch_of(world.rank()), nullptr, loss_is_failure());
      std::this_thread::sleep_for(std::chrono::milliseconds(40 * (world.rank() * step % 6)));
      heartbeat.stop();
    });
  }
}

TEST(HeartbeatTree, AFailureOfAnyRankReachesAllRanksOfAllNodes) {
  for (const int guilty : {0, 4, 5}) {  // the root, a leader, a rank behind a leader
    comm::run_ranks(6, [&](comm::Communicator& world) {
      std::atomic<int> code = 0;
      std::atomic<int> rank = -1;
      comm::HeartbeatOptions options;
      options.interval_s = 0.02;
      options.on_loss = [&](const comm::PeerLoss& loss) {
        rank = loss.rank;
        code = loss.exit_code;
      };
      comm::Heartbeat heartbeat(world, launch_of(world.rank()), nullptr, options);
      world.barrier();
      if (world.rank() == guilty) heartbeat.announce_failure(6, "loss is not finite");
      for (int i = 0; i < 500 && code == 0 && world.rank() != guilty; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(code, world.rank() == guilty ? 0 : 6) << "rank " << world.rank();
      EXPECT_EQ(rank, world.rank() == guilty ? -1 : guilty) << "rank " << world.rank();
      world.barrier();
    });
  }
}

TEST(HeartbeatTree, RankZeroKnowsTheActivityOfRanksBehindALeader) {
  std::mutex mutex;
  std::vector<comm::PeerLoss> losses;
  comm::run_ranks(6, [&](comm::Communicator& world) {
    const auto activity = std::make_shared<comm::Activity>();
    activity->set_phase("step");
    activity->set_step(world.rank() == 5 ? 11 : 12);
    comm::HeartbeatOptions options;
    options.interval_s = 0.02;
    options.hang = {.most_s = 0.5, .least_s = 0.5};
    options.on_loss = [&](const comm::PeerLoss& loss) {
      const std::lock_guard lock(mutex);
      losses.push_back(loss);
    };
    comm::Heartbeat heartbeat(world, launch_of(world.rank()), activity, options);
    const auto num_losses = [&] {
      const std::lock_guard lock(mutex);
      return losses.size();
    };
    for (int i = 0; i < 500 && num_losses() < 6; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    world.barrier();
  });
  ASSERT_EQ(losses.size(), 6U);
  for (const comm::PeerLoss& loss : losses) {
    EXPECT_EQ(loss.rank, 5);
    EXPECT_EQ(loss.hostname, "n2");
    EXPECT_TRUE(loss.hung);
  }
}

}  // namespace
}  // namespace trireme::testing
