#include <gtest/gtest.h>

#include <exception>
#include <mutex>
#include <string>

#include "comm/nccl/nccl_backend.hpp"
#include "comm/nccl/nccl_watch.hpp"
#include "comm/thread/thread_world.hpp"
#include "unit/comm/conformance.hpp"
#include "unit/comm/nccl_stand_in.hpp"
#include "unit/comm/values.hpp"

/// The NCCL backend over the recording stand-in: 2 nodes x 4 ranks, each rank a thread.
namespace trireme::testing {
namespace {

constexpr int kNodes = 2;
constexpr int kPerNode = 4;

LaunchInfo place_of(int rank, int per_node = kPerNode) {
  LaunchInfo launch;
  launch.rank = rank;
  launch.size = kNodes * per_node;
  launch.local_rank = rank % per_node;
  launch.local_size = per_node;
  launch.node = rank / per_node;
  launch.num_nodes = kNodes;
  launch.hostname = "n" + std::to_string(launch.node + 1);
  return launch;
}

/// Runs body(nccl world) on 8 ranks; `visible` devices each, as chosen by
/// `first` of its local rank.
template <class Body>
void run_gpus(const Body& body, int visible = kPerNode, bool bound = false) {
  ThreadWorld threads(kNodes * kPerNode);
  std::mutex mutex;
  std::exception_ptr cause;  // kept before the others can fail of it
  run_ranks(kNodes * kPerNode, [&](Communicator& outer) {
    const LaunchInfo launch = place_of(outer.rank());
    stand_in_rank(launch.node, visible, bound ? launch.local_rank : 0);
    try {
      const auto world =
          make_nccl_world(stand_in_api(), launch, threads.communicator(outer.rank()), {});
      body(*world, launch);
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!cause) cause = std::current_exception();
      }
      threads.fail(outer.rank());
    }
  });
  if (cause) std::rethrow_exception(cause);
}

class NcclConformance : public ::testing::TestWithParam<ConformanceCase> {};

TEST_P(NcclConformance, HoldsOnTwoNodesOfFour) {
  const auto body = GetParam().body;
  run_gpus([body](Communicator& world, const LaunchInfo&) { body(world); });
}

INSTANTIATE_TEST_SUITE_P(StandIn, NcclConformance,
                         ::testing::ValuesIn(conformance_cases().begin(),
                                             conformance_cases().end()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Nccl, DeviceIsLocalRankAndOneIdServesTheGroup) {
  run_gpus([](Communicator& world, const LaunchInfo& launch) {
    const auto calls = stand_in_calls();

    EXPECT_EQ(std::count(calls.begin(), calls.end(), "get_unique_id"), world.rank() == 0 ? 1 : 0);
    EXPECT_EQ(calls.back(), "init_rank " + std::to_string(launch.rank) + "/8 device " +
                                std::to_string(launch.local_rank));
  });
}

TEST(Nccl, OneVisibleGpuPerTaskIsDeviceZero) {
  run_gpus(
      [](Communicator&, const LaunchInfo& launch) {
        EXPECT_EQ(stand_in_calls().back(),
                  "init_rank " + std::to_string(launch.rank) + "/8 device 0");
      },
      1, true);
}

TEST(Nccl, TwoRanksOnOneGpuAreRefused) {
  try {
    run_gpus([](Communicator&, const LaunchInfo&) { ADD_FAILURE() << "made a communicator"; }, 2);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::resource);
    EXPECT_NE(std::string(e.what()).find("ranks 0, 2 share GPU 0000:00:00.0 of node 0 (n1)"),
              std::string::npos)
        << e.what();
  }
}

TEST(Nccl, IdleGpuIsNamed) {
  const GpuReport report = compare_gpus({{0, "n1", "a", {"a", "b"}}, {1, "n2", "a", {"a"}}});

  EXPECT_EQ(report.shared, "");
  EXPECT_EQ(report.idle, "GPU b of node 0 (n1) is visible but no rank uses it");
}

TEST(Nccl, EventsOrderTheStreamsAroundACollective) {
  run_gpus([](Communicator& world, const LaunchInfo& launch) {
    stand_in_calls();
    float x = 1;

    const auto work = world.all_reduce(f32_sum(&x, &x, 1));
    const auto started = stand_in_calls();
    work->wait();
    const auto waited = stand_in_calls();

    ASSERT_EQ(started.size(), 4U);
    const std::string stream = started[3].substr(std::string("record on stream ").size());
    EXPECT_EQ(started[0], "record on stream default");
    EXPECT_EQ(started[1], "stream " + stream + " waits for stream default");
    EXPECT_EQ(started[2],
              "all_reduce device " + std::to_string(launch.local_rank) + " stream " + stream);
    EXPECT_EQ(started[3], "record on stream " + stream);
    EXPECT_EQ(waited, std::vector<std::string>{"stream default waits for stream " + stream});
    EXPECT_TRUE(work->poll());
  });
}

TEST(Nccl, GroupsAcrossNodesGetTheirOwnIds) {
  run_gpus([](Communicator& world, const LaunchInfo& launch) {
    const auto tp = world.split(launch.node, world.rank(), "tp");
    const auto dp = world.split(launch.local_rank, world.rank(), "dp");
    const auto pp = world.split(world.rank(), 0, "pp");
    stand_in_calls();
    float sum = static_cast<float>(world.rank());
    tp->all_reduce(f32_sum(&sum, &sum, 1))->wait();
    EXPECT_EQ(sum, launch.node == 0 ? 6.0F : 22.0F);
    sum = static_cast<float>(world.rank());
    dp->all_reduce(f32_sum(&sum, &sum, 1))->wait();
    EXPECT_EQ(sum, static_cast<float>(2 * launch.local_rank + 4));
    stand_in_calls();
    pp->all_reduce(f32_sum(&sum, &sum, 1))->wait();
    for (const auto& call : stand_in_calls()) EXPECT_EQ(call.find("all_reduce"), std::string::npos);
  });
}

TEST(Nccl, WatchNamesAHangingCollective) {
  stand_in_rank(0, 1);
  const auto recorder = std::make_shared<Recorder>("dp", 4, nullptr);
  std::mutex mutex;
  std::condition_variable told;
  std::string message;
  NcclWatch watch(stand_in_api(), 0, [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    message = text;
    told.notify_all();
  });
  stand_in_hang(true);
  CUstream_st* stream = nullptr;
  stand_in_api().stream_create(&stream, cudaStreamNonBlocking, -5);
  auto never = std::make_shared<CommEvent>(stand_in_api());
  stand_in_api().event_record(never->get(), stream);
  stand_in_hang(false);
  Call call;
  call.recorder = recorder;
  call.sequence = recorder->begin("all_reduce", "grads", 4, /*counted=*/false).sequence;
  call.what = "all_reduce 'grads' of group dp";
  call.timeout_s = 0.1;

  watch.add(nullptr, call, never);
  std::unique_lock lock(mutex);
  told.wait_for(lock, std::chrono::seconds(10), [&] { return !message.empty(); });

  EXPECT_NE(message.find("all_reduce 'grads' of group dp: not complete after 0.1 s"),
            std::string::npos)
      << message;
  EXPECT_FALSE(recorder->recent().front().complete);
  stand_in_api().stream_destroy(stream);
}

}  // namespace
}  // namespace trireme::testing
