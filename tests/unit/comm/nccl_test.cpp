#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nccl/nccl_backend.hpp"
#include "comm/nccl/nccl_watch.hpp"
#include "comm/thread/thread_world.hpp"
#include "unit/comm/conformance.hpp"
#include "unit/comm/nccl_stand_in.hpp"
#include "unit/comm/values.hpp"

/// Tests the NCCL backend over the recording stand-in: 2 nodes x 4 ranks, and each rank is a
/// thread.
namespace trireme::testing {
namespace {

constexpr int kNodes = 2;
constexpr int kPerNode = 4;

comm::LaunchInfo place_of(int rank, int per_node = kPerNode) {
  comm::LaunchInfo launch;
  launch.rank = rank;
  launch.size = kNodes * per_node;
  launch.local_rank = rank % per_node;
  launch.local_size = per_node;
  launch.node = rank / per_node;
  launch.num_nodes = kNodes;
  launch.hostname = "n" + std::to_string(launch.node + 1);
  return launch;
}

/// Runs body(nccl world) on 8 ranks. Each sees `visible` devices, from `first` of its local rank
/// on.
template <class Body>
void run_gpus(const Body& body, int visible = kPerNode, bool bound = false,
              const comm::CommOptions& options = {}) {
  comm::ThreadWorld threads(kNodes * kPerNode);
  std::mutex mutex;
  std::exception_ptr cause;  // recorded before the other ranks can fail because of it
  comm::run_ranks(kNodes * kPerNode, [&](comm::Communicator& outer) {
    const comm::LaunchInfo launch = place_of(outer.rank());
    stand_in_rank(launch.node, visible, bound ? launch.local_rank : 0);
    try {
      const auto world = comm::make_nccl_world(stand_in_api(), launch,
                                               threads.communicator(outer.rank()), options);
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
  run_gpus([body](comm::Communicator& world, const comm::LaunchInfo&) { body(world); });
}

INSTANTIATE_TEST_SUITE_P(StandIn, NcclConformance,
                         ::testing::ValuesIn(conformance_cases().begin(),
                                             conformance_cases().end()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Nccl, DeviceIsLocalRankAndOneIdServesTheGroup) {
  run_gpus([](comm::Communicator& world, const comm::LaunchInfo& launch) {
    const auto calls = stand_in_calls();

    EXPECT_EQ(std::count(calls.begin(), calls.end(), "get_unique_id"), world.rank() == 0 ? 1 : 0);
    EXPECT_EQ(calls.back(), "init_rank " + std::to_string(launch.rank) + "/8 device " +
                                std::to_string(launch.local_rank));
  });
}

TEST(Nccl, OneVisibleGpuPerTaskIsDeviceZero) {
  run_gpus(
      [](comm::Communicator&, const comm::LaunchInfo& launch) {
        EXPECT_EQ(stand_in_calls().back(),
                  "init_rank " + std::to_string(launch.rank) + "/8 device 0");
      },
      1, true);
}

TEST(Nccl, TwoRanksOnOneGpuAreRefused) {
  try {
    run_gpus([](comm::Communicator&,
                const comm::LaunchInfo&) { ADD_FAILURE() << "made a communicator"; },
             2);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::resource);
    EXPECT_NE(std::string(e.what()).find("ranks 0, 2 share GPU 0000:00:00.0 of node 0 (n1)"),
              std::string::npos)
        << e.what();
  }
}

TEST(Nccl, IdleGpuIsNamed) {
  const comm::GpuReport report =
      comm::compare_gpus({{0, "n1", "a", {"a", "b"}}, {1, "n2", "a", {"a"}}});

  EXPECT_EQ(report.shared, "");
  EXPECT_EQ(report.idle, "GPU b of node 0 (n1) is visible but no rank uses it");
}

TEST(Nccl, EventsOrderTheStreamsAroundACollective) {
  run_gpus([](comm::Communicator& world, const comm::LaunchInfo& launch) {
    float x = 1;
    world.all_reduce(f32_sum(&x, &x, 1))->wait();  // makes the stream of reductions
    stand_in_calls();

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
  run_gpus([](comm::Communicator& world, const comm::LaunchInfo& launch) {
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

std::ptrdiff_t num_calls(const std::vector<std::string>& calls, const std::string& start) {
  return std::count_if(calls.begin(), calls.end(),
                       [&](const std::string& call) { return call.starts_with(start); });
}

/// Returns the stream of this operation in the recorded calls: "stream 5".
std::string stream_of(const std::vector<std::string>& calls, const std::string& operation) {
  for (const auto& call : calls) {
    if (call.starts_with(operation)) return call.substr(call.find("stream"));
  }
  return "none";
}

TEST(Nccl, GroupsOverEqualRanksShareTheirLanesUntilTheLastIsGone) {
  run_gpus([](comm::Communicator& world, const comm::LaunchInfo& launch) {
    auto first = world.split(launch.node, world.rank(), "dp");
    float sum = 1;
    first->all_reduce(f32_sum(&sum, &sum, 1))->wait();
    stand_in_calls();

    const auto second = world.split(launch.node, world.rank(), "dp_cp");
    const auto nested = second->split(0, second->rank(), "nested");
    EXPECT_EQ(num_calls(stand_in_calls(), "init_rank"), 0);
    first.reset();
    sum = 1;
    second->all_reduce(f32_sum(&sum, &sum, 1))->wait();
    nested->all_reduce(f32_sum(&sum, &sum, 1))->wait();
    EXPECT_EQ(sum, 16.0F);
    auto calls = stand_in_calls();
    EXPECT_EQ(num_calls(calls, "init_rank") + num_calls(calls, "comm_destroy"), 0);

    // Other ranks, or the same ones in another order, form another communicator.
    const auto reversed = world.split(launch.node, -world.rank(), "reversed");
    EXPECT_EQ(num_calls(stand_in_calls(), "init_rank"), 1);
    EXPECT_EQ(reversed->rank(), kPerNode - 1 - launch.local_rank);
  });
}

TEST(Nccl, TheLastGroupDestroysBothCommunicators) {
  run_gpus([](comm::Communicator& world, const comm::LaunchInfo& launch) {
    auto first = world.split(launch.node, world.rank(), "dp");
    auto second = world.split(launch.node, world.rank(), "dp_cp");
    float sum = 1;
    second->all_reduce(f32_sum(&sum, &sum, 1))->wait();
    stand_in_calls();

    first.reset();
    EXPECT_EQ(num_calls(stand_in_calls(), "comm_destroy"), 0);
    second.reset();
    EXPECT_EQ(num_calls(stand_in_calls(), "comm_destroy"), 2);
  });
}

TEST(Nccl, AGroupThatOneRankDroppedIsMadeAgainByAll) {
  run_gpus([](comm::Communicator& world, const comm::LaunchInfo& launch) {
    auto group = world.split(launch.node, world.rank(), "dp");
    if (launch.local_rank == 2) group.reset();
    stand_in_calls();

    const auto again = world.split(launch.node, world.rank(), "dp");
    EXPECT_EQ(num_calls(stand_in_calls(), "init_rank"), 1);
    float sum = 1;
    again->all_reduce(f32_sum(&sum, &sum, 1))->wait();
    EXPECT_EQ(sum, 4.0F);
  });
}

TEST(Nccl, GathersDoNotQueueBehindReductions) {
  run_gpus([](comm::Communicator& world, const comm::LaunchInfo& launch) {
    const auto group = world.split(launch.node, world.rank(), "dp");
    stand_in_calls();
    std::array<float, kPerNode> all{};
    float mine = 1;
    group->all_reduce(f32_sum(&mine, &mine, 1))->wait();
    group->reduce_scatter(f32_sum(all.data(), &mine, 1))->wait();
    group->all_gather({.input = &mine, .output = all.data(), .count = 1, .dtype = DType::f32})
        ->wait();
    group->broadcast({.data = &mine, .count = 1, .dtype = DType::f32, .root = 0})->wait();

    const auto calls = stand_in_calls();
    EXPECT_EQ(num_calls(calls, "init_rank"), 1) << "the reductions' own communicator";
    EXPECT_EQ(stream_of(calls, "reduce_scatter"), stream_of(calls, "all_reduce"));
    EXPECT_NE(stream_of(calls, "all_gather"), stream_of(calls, "all_reduce"));
    EXPECT_EQ(stream_of(calls, "broadcast"), stream_of(calls, "all_gather"));
  });
}

TEST(Nccl, KeepsTheLaunchOrderUnlessTheOptionsForbidIt) {
  constexpr const char* kVariable = "NCCL_LAUNCH_ORDER_IMPLICIT";
  const auto after = [](bool launch_order) {
    run_gpus([](comm::Communicator&, const comm::LaunchInfo&) {}, kPerNode, /*bound=*/false,
             {.launch_order = launch_order});
    const char* set = std::getenv(kVariable);
    return std::string(set == nullptr ? "not set" : set);
  };
  ::unsetenv(kVariable);
  EXPECT_EQ(after(false), "not set");
  EXPECT_EQ(after(true), "1");
  ::setenv(kVariable, "0", /*overwrite=*/1);
  EXPECT_EQ(after(true), "0") << "the user's value";
  ::unsetenv(kVariable);
}

TEST(Nccl, WatchNamesAHangingCollective) {
  stand_in_rank(0, 1);
  const auto recorder = std::make_shared<comm::Recorder>("dp", 4, nullptr);
  std::mutex mutex;
  std::condition_variable told;
  std::string message;
  comm::NcclWatch watch(stand_in_api(), 0, [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    message = text;
    told.notify_all();
  });
  stand_in_hang(true);
  CUstream_st* stream = nullptr;
  stand_in_api().stream_create(&stream, cudaStreamNonBlocking, -5);
  auto never = std::make_shared<comm::CommEvent>(stand_in_api());
  stand_in_api().event_record(never->get(), stream);
  stand_in_hang(false);
  comm::Call call;
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
