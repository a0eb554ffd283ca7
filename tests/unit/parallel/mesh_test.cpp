#include "parallel/mesh.hpp"

#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"

namespace trireme::parallel {
namespace {

TEST(Mesh, GivesEveryRankTheWholeWorldAsDataAxis) {
  comm::run_ranks(4, [](comm::Communicator& world) {
    const Mesh mesh(world, {});

    EXPECT_EQ(mesh.size(Axis::data), 4);
    EXPECT_EQ(mesh.rank(Axis::data), world.rank());
    EXPECT_EQ(mesh.size(Axis::dp), 4);
    EXPECT_EQ(mesh.size(Axis::tp), 1);
    EXPECT_EQ(mesh.size(Axis::pp), 1);
  });
}

TEST(Mesh, SplitsReplicasByNodeWhereAllNodesHoldEquallyMany) {
  ParallelConfig config;
  config.tp = 2;
  config.hierarchical = true;
  const auto levels = [&](const std::vector<int>& nodes, auto&& judge) {
    comm::run_ranks(8, [&](comm::Communicator& world) {
      const Mesh mesh(world, config, nodes);
      judge(world, mesh.node_levels());
    });
  };
  levels({0, 0, 0, 0, 1, 1, 1, 1}, [](comm::Communicator& world, const NodeLevels* found) {
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->node->size(), 2);
    EXPECT_EQ(found->node->rank(), world.rank() / 2 % 2);
    EXPECT_EQ(found->across->size(), 2);
    EXPECT_EQ(found->across->rank(), world.rank() / 4);
  });
  levels({0, 0, 1, 1, 0, 0, 1, 1}, [](comm::Communicator& world, const NodeLevels* found) {
    ASSERT_NE(found, nullptr) << "ranks distributed to the nodes round-robin";
    EXPECT_EQ(found->node->rank(), world.rank() / 4);
    EXPECT_EQ(found->across->rank(), world.rank() / 2 % 2);
  });
  for (const std::vector<int>& no_gain :
       {std::vector<int>(8, 0), {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 0, 0, 1, 1}}) {
    levels(no_gain,
           [](comm::Communicator&, const NodeLevels* found) { EXPECT_EQ(found, nullptr); });
  }
}

TEST(Mesh, ExpertsLieInAGridOfTheirOwnOverTheSameRanks) {
  ParallelConfig config;  // tp 2, cp 2, dp 2 in each of two stages
  config.tp = 2;
  config.cp = 2;
  config.pp = 2;
  config.etp = 1;
  config.ep = 4;
  config.zero = 1;
  comm::run_ranks(16, [&](comm::Communicator& world) {
    const Mesh mesh(world, config);
    const int in_stage = world.rank() % 8;

    EXPECT_TRUE(mesh.has_expert_grid());
    EXPECT_EQ(mesh.size(Axis::etp), 1);
    EXPECT_EQ(mesh.size(Axis::ep), 4);
    EXPECT_EQ(mesh.size(Axis::edp), 2);
    EXPECT_EQ(mesh.rank(Axis::ep), in_stage % 4);
    EXPECT_EQ(mesh.rank(Axis::edp), in_stage / 4);
    EXPECT_EQ(mesh.size(Axis::expert_shard), 2) << "under ZeRO all ranks of edp share one copy";
    EXPECT_EQ(mesh.size(Axis::expert_replica), 1);
  });
  config.zero_shard = 2;  // replicas of 4 ranks: each has every expert once
  comm::run_ranks(16, [&](comm::Communicator& world) {
    const Mesh mesh(world, config);

    EXPECT_EQ(mesh.size(Axis::expert_shard), 1);
    EXPECT_EQ(mesh.size(Axis::expert_replica), 2);
    EXPECT_EQ(mesh.rank(Axis::expert_replica), world.rank() % 8 / 4);
  });
}

TEST(Mesh, WithoutFoldingExpertsLieAsOtherWeightsDo) {
  ParallelConfig config;
  config.tp = 2;
  config.zero = 2;
  config.zero_shard = 2;
  comm::run_ranks(8, [&](comm::Communicator& world) {
    const Mesh mesh(world, config);

    EXPECT_FALSE(mesh.has_expert_grid());
    for (const auto& [expert, dense] : {std::pair{Axis::etp, Axis::tp},
                                        {Axis::edp, Axis::data},
                                        {Axis::expert_shard, Axis::shard},
                                        {Axis::expert_replica, Axis::replica}}) {
      EXPECT_EQ(mesh.size(expert), mesh.size(dense));
      EXPECT_EQ(mesh.rank(expert), mesh.rank(dense));
    }
  });
}

TEST(Mesh, RefusesEveryLayoutWithoutEngineAtOnce) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    ParallelConfig config;
    config.ep = 0;
    config.zero = 4;
    config.recompute = "some";
    try {
      const Mesh mesh(world, config);
      FAIL() << "accepted";
    } catch (const Error& error) {
      const std::string text = error.what();

      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(text.find("parallel.ep = 0"), std::string::npos) << text;
      EXPECT_NE(text.find("parallel.zero = 4"), std::string::npos) << text;
      EXPECT_NE(text.find("parallel.recompute = some"), std::string::npos) << text;
    }
  });
}

TEST(Mesh, SizesThatDoNotDivideTheRanksAreRefusedWithThoseThatDo) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  for (const auto& [tp, cp] : {std::pair{3L, 1L}, {2L, 3L}, {8L, 1L}, {kHuge, 4L}, {3L, kHuge}}) {
    ParallelConfig config;
    config.tp = tp;
    config.cp = cp;
    try {
      (void)data_ranks(config, 4);
      FAIL() << "accepted";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(text.find(formatted("parallel.tp = {}, cp = {}", tp, cp)), std::string::npos)
          << text;
      EXPECT_NE(text.find("4 ranks started. Choose a product of 1, 2, 4"), std::string::npos)
          << text;
    }
  }
  ParallelConfig config;
  config.tp = 2;
  EXPECT_EQ(data_ranks(config, 8), 4);
}

}  // namespace
}  // namespace trireme::parallel
