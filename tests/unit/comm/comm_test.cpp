#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "comm/agree.hpp"
#include "comm/factory.hpp"
#include "comm/launchers.hpp"
#include "comm/liveness/activity.hpp"
#include "comm/reduce.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"
#include "core/process/stop_signals.hpp"
#include "unit/comm/values.hpp"

namespace trireme::testing {
namespace {

template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  return {ErrorKind::internal, "no error was thrown"};
}

bool contains(const Error& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

/// Converts half precision by its definition, with arithmetic.
float half_by_definition(std::uint16_t bits) {
  const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
  const int exponent = (bits >> 10) & 31;
  const auto fraction = static_cast<float>(bits & 1023U);
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024.0F + fraction, exponent - 25);
}

TEST(Half, EveryValueWidensAndNarrowsToItself) {
  for (unsigned i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float expected = half_by_definition(bits);
    const float value = from_f16_bits(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(from_f16_bits(to_f16_bits(value))));
      continue;
    }
    ASSERT_EQ(__builtin_bit_cast(std::uint32_t, value),
              __builtin_bit_cast(std::uint32_t, expected));
    ASSERT_EQ(to_f16_bits(value), bits);
  }
}

TEST(Half, RoundsToNearestEven) {
  for (unsigned i = 0; i < 0x7c00; ++i) {  // between every two neighbours, up to infinity
    const float low = half_by_definition(static_cast<std::uint16_t>(i));
    const float high =
        i + 1 == 0x7c00 ? 65536.0F : half_by_definition(static_cast<std::uint16_t>(i + 1));
    const float middle = (low + high) / 2;
    ASSERT_EQ(to_f16_bits(middle), i % 2 == 0 ? i : i + 1);
    ASSERT_EQ(to_f16_bits(std::nextafter(middle, 0.0F)), i);
    ASSERT_EQ(to_f16_bits(std::nextafter(middle, 1e6F)), i + 1);
  }
  EXPECT_EQ(to_f16_bits(1e9F), 0x7c00);
  EXPECT_EQ(to_f16_bits(-1e9F), 0xfc00);
}

TEST(Reduce, NanSurvivesMaxAndMin) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const comm::ReduceOp op : {comm::ReduceOp::max, comm::ReduceOp::min}) {
    const std::array<float, 2> a{nan, 1};
    const std::array<float, 2> b{1, nan};
    std::array<float, 2> out{};
    comm::reduce_in_order(std::array<const void*, 2>{a.data(), b.data()}, out.data(), 2, DType::f32,
                          op);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_TRUE(std::isnan(out[1]));
  }
}

TEST(Reduce, IntegersWrap) {
  const std::int32_t a = std::numeric_limits<std::int32_t>::max();
  const std::int32_t b = 1;
  std::int32_t out = 0;
  comm::reduce_in_order(std::array<const void*, 2>{&a, &b}, &out, 1, DType::i32,
                        comm::ReduceOp::sum);
  EXPECT_EQ(out, std::numeric_limits<std::int32_t>::min());
}

TEST(ThreadWorld, MissingRankTimesOutWithFullDescription) {
  comm::CommOptions options;
  options.timeout_s = 0.2;
  options.activity = std::make_shared<comm::Activity>();
  const Error error = error_of([&] {
    comm::run_ranks(
        2,
        [](comm::Communicator& world) {
          std::vector<float> data(100000);
          if (world.rank() == 1) {
            world.all_reduce(f32_sum(data.data(), data.data(), data.size(), "grads bucket 3"))
                ->wait();
          } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(800));
          }
        },
        options);
  });

  EXPECT_EQ(error.kind(), ErrorKind::comm);
  EXPECT_TRUE(contains(error,
                       "all_reduce 'grads bucket 3' of group world (rank 1 of 2), operation 1, "
                       "400000 bytes: not complete after 0.2 s"))
      << error.what();
  EXPECT_TRUE(options.activity->snapshot().timed_out);
  EXPECT_FALSE(options.activity->snapshot().complete);
}

TEST(ThreadWorld, DeadRankFreesTheOthersAndItsErrorIsTheOneSeen) {
  std::atomic<int> freed = 0;
  const Error error = error_of([&] {
    comm::run_ranks(4, [&](comm::Communicator& world) {
      float x = 1;
      const comm::WorkPtr pending = world.all_reduce(f32_sum(&x, &x, 1));
      if (world.rank() == 2) fail(ErrorKind::numeric, "rank 2 diverged");
      try {
        world.barrier();
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::comm) ++freed;
        throw;
      }
    });
  });

  EXPECT_EQ(error.kind(), ErrorKind::numeric);
  EXPECT_TRUE(contains(error, "rank 2 diverged"));
  EXPECT_EQ(freed, 3);
}

TEST(ThreadWorld, DifferentSizesAreNamed) {
  const Error error = error_of([&] {
    comm::run_ranks(2, [](comm::Communicator& world) {
      std::vector<float> data(10);
      const std::uint64_t count = world.rank() == 0 ? 10 : 9;
      world.all_reduce(f32_sum(data.data(), data.data(), count, "loss"))->wait();
    });
  });

  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_TRUE(contains(error, "all_reduce 'loss'")) << error.what();
  EXPECT_TRUE(contains(error, "different sizes")) << error.what();
}

TEST(Factory, UnknownBackendListsTheKnownOnes) {
  const Error error = error_of([] { comm::make_world("gloo", {}); });

  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_TRUE(contains(error, "'gloo', must be one of auto, self, mpi")) << error.what();
}

TEST(Factory, AutoOfOneRankIsSelf) {
  EXPECT_STREQ(comm::make_world("auto", {})->backend(), "self");
}

TEST(Factory, SelfRefusesSeveralRanks) {
  comm::LaunchInfo launch;
  launch.size = 4;
  EXPECT_TRUE(contains(error_of([&] { comm::make_world("self", launch); }), "has 4"));
}

TEST(Launchers, ProcessesThatMpiDoesNotSeeAreAnError) {
  for (const comm::LauncherVariables& alone : std::vector<comm::LauncherVariables>{
           {{"SLURM_STEP_NUM_TASKS", "4"}},
           {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
           {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
           {{"MPI_LOCALNRANKS", "2"}, {"SLURM_STEP_NUM_TASKS", "1"}},
           {{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "8"}},
           {{"JSM_NAMESPACE_SIZE", "6"}},
           {{"PALS_RANKID", "1"}},
           {{"PMIX_RANK", "3"}}}) {
    const Error error = error_of([&] { comm::check_launcher(alone, 1); });
    EXPECT_EQ(error.kind(), ErrorKind::usage) << alone.begin()->first << error.what();
    EXPECT_TRUE(contains(error, "Type `srun --mpi=pmix")) << error.what();
    EXPECT_NO_THROW(comm::check_launcher(alone, 2));
  }
  for (const comm::LauncherVariables& whole : std::vector<comm::LauncherVariables>{
           {},
           {{"SLURM_STEP_NUM_TASKS", "1"}},
           {{"PMIX_RANK", "0"}},
           {{"FLUX_TASK_RANK", "0"}},  // the script of a Flux batch job
           {{"PMI_RANK", "x"}},
           // This is mpirun -n 1 on two nodes: the tasks are its daemons.
           {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}})
    EXPECT_NO_THROW(comm::check_launcher(whole, 1));
}

TEST(Session, NodesAreNumberedByTheirFirstRank) {
  const std::vector<int> leaders{0, 1, 0, 1, 4};
  EXPECT_EQ(comm::number_nodes(leaders, 2).node, 0);
  EXPECT_EQ(comm::number_nodes(leaders, 3).node, 1);
  EXPECT_EQ(comm::number_nodes(leaders, 4).node, 2);
  EXPECT_EQ(comm::number_nodes(leaders, 4).num_nodes, 3);
}

TEST(Agreement, AStopBeforeTheStartStopsAllRanks) {
  comm::run_ranks(3, [](comm::Communicator& world) {
    const auto action = [&] {
      if (world.rank() == 1) throw StoppedEarly();
    };
    EXPECT_THROW(comm::all_or_none(world, action), StoppedEarly);
  });
}

TEST(Agreement, OneRankThrowsForAll) {
  comm::run_ranks(3, [](comm::Communicator& world) {
    const auto action = [&] {
      if (world.rank() > 0) fail(ErrorKind::data, "rank {}", world.rank());
    };
    if (world.rank() == 1) {
      EXPECT_THROW(comm::all_or_none(world, action), comm::AgreedError);
    } else {
      try {
        comm::all_or_none(world, action);
        ADD_FAILURE() << "nothing thrown";
      } catch (const comm::PeerFailed& peer) {
        EXPECT_EQ(peer.code(), 3);
      }
    }
    EXPECT_NO_THROW(comm::all_or_none(world, [] {}));
    EXPECT_EQ(comm::broadcast_text(world, world.rank() == 0 ? "from rank 0" : "other"),
              "from rank 0");
    EXPECT_EQ(comm::broadcast_text(world, ""), "");
  });
}

}  // namespace
}  // namespace trireme::testing
