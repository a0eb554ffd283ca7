#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "comm/factory.hpp"
#include "comm/liveness/heartbeat.hpp"
#include "comm/session.hpp"
#include "core/error.hpp"

/// Without arguments: goodbyes in any order are not deaths, and announcements arrive. With
/// arguments (from comm_heartbeat_kill.sh): rank <victim> dies by SIGKILL, and the others write
/// what they detected.
namespace trireme::testing {
namespace {

const comm::LaunchInfo* g_launch = nullptr;

void rest(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

comm::HeartbeatOptions no_loss_expected() {
  comm::HeartbeatOptions options;
  options.interval_s = 0.05;
  options.on_loss = [](const comm::PeerLoss& loss) {
    ADD_FAILURE() << "rank " << loss.rank << " taken for lost: " << loss.reason;
  };
  return options;
}

TEST(Heartbeat, GoodbyesInAnyOrderAreNoDeaths) {
  const auto world = comm::make_world("mpi", *g_launch);
  for (const bool low_ranks_first : {true, false}) {
    comm::Heartbeat heartbeat(*world, *g_launch, nullptr, no_loss_expected());
    const int place = low_ranks_first ? world->rank() : world->size() - 1 - world->rank();
    rest(0.15 * place);

    const auto start = std::chrono::steady_clock::now();
    heartbeat.stop();
    heartbeat.stop();  // a second call is harmless

    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 3.0);
    rest(0.15 * (world->size() - place));
    world->barrier();
  }
}

TEST(Heartbeat, AnnouncedFailureReachesAllWithItsExitCode) {
  const auto world = comm::make_world("mpi", *g_launch);
  for (int guilty = 0; guilty < world->size(); ++guilty) {
    std::atomic<int> code = 0;
    std::atomic<int> rank = -1;
    comm::HeartbeatOptions options;
    options.on_loss = [&](const comm::PeerLoss& loss) {
      rank = loss.rank;
      code = loss.exit_code;
    };
    comm::Heartbeat heartbeat(*world, *g_launch, nullptr, options);
    world->barrier();

    if (world->rank() == guilty) heartbeat.announce_failure(6, "loss is\tnot finite");
    for (int i = 0; i < 300 && code == 0 && world->rank() != guilty; ++i) rest(0.01);

    const bool told = world->rank() != guilty && world->size() > 1;
    EXPECT_EQ(code, told ? 6 : 0);
    EXPECT_EQ(rank, told ? guilty : -1);
    world->barrier();
  }
}

void note(const std::string& folder, const std::string& what, const std::string& text) {
  std::ofstream(folder + "/" + what + "." + std::to_string(g_launch->rank)) << text;
}

/// Returns the launch as if each node had TRIREME_TEST_NODE_RANKS ranks, if this is set.
comm::LaunchInfo launch_with_nodes() {
  comm::LaunchInfo launch = *g_launch;
  const char* const text = std::getenv("TRIREME_TEST_NODE_RANKS");
  if (text == nullptr) return launch;
  const int ranks = std::stoi(text);
  launch.node = launch.rank / ranks;
  launch.local_rank = launch.rank % ranks;
  launch.num_nodes = (launch.size + ranks - 1) / ranks;
  return launch;
}

int victim_run(int victim, const std::string& signal, const std::string& folder) {
  std::signal(SIGTERM, [](int) {});  // a real run would stop at its next step
  const auto world = comm::make_world("mpi", *g_launch);
  comm::HeartbeatOptions options;
  options.interval_s = 0.05;
  options.silence_s = 1.0;
  options.on_loss = [&](const comm::PeerLoss& loss) {
    note(folder, "loss",
         formatted("{} {} {} {}", loss.rank, loss.exit_code, loss.pid, loss.reason));
    _exit(loss.exit_code);
  };
  const comm::Heartbeat heartbeat(*world, launch_with_nodes(), nullptr, options);
  std::vector<float> grads(std::size_t{1} << 22);
  const auto all_reduce = [&] {
    return world->all_reduce({.input = grads.data(),
                              .output = grads.data(),
                              .count = grads.size(),
                              .dtype = DType::f32,
                              .op = comm::ReduceOp::sum});
  };
  all_reduce()->wait();
  const comm::WorkPtr half_done = all_reduce();  // this rank passed its first chunks
  if (world->rank() == victim) {
    note(folder, "victim", std::to_string(getpid()));
    kill(getpid(), signal == "stop" ? SIGSTOP : SIGKILL);
  }
  half_done->wait();  // the survivors wait in a collective, like in a training step
  world->barrier();
  return 0;
}

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) {
  const trireme::comm::Session session(&argc, &argv);
  trireme::testing::g_launch = &session.launch();
  if (argc == 4) return trireme::testing::victim_run(std::stoi(argv[1]), argv[2], argv[3]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
