#include "parallel/units/grad_reduction.hpp"

#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"
#include "comm/traffic.hpp"
#include "core/error.hpp"
#include "parallel/units/gathered.hpp"

namespace trireme::parallel {
namespace {

constexpr std::size_t kParams = 5;
constexpr double kBytesOfTwo = 2.0 * 64 * 4 / (1024 * 1024);  // MiB of two parameters below

/// Declares five parameters of 64 elements in two units.
void declare_and_allocate(ParamRegistry& registry, const Mesh& mesh) {
  registry.begin_unit("a");
  for (std::size_t i = 0; i < kParams; ++i) {
    if (i == 2) registry.begin_unit("b");
    registry.declare({.name = formatted("p{}", i), .shape = {64}});
  }
  registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
}

ParallelConfig config_of(std::int64_t zero, double bucket_mb, std::int64_t zero_shard = 0) {
  ParallelConfig config;
  config.zero = zero;
  config.bucket_mb = bucket_mb;
  config.zero_shard = zero_shard;
  return config;
}

void expect_sums(int ranks, const ParallelConfig& config, int num_backwards,
                 const std::vector<int>& nodes = {}) {
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    const Mesh mesh(world, config, nodes);
    ParamRegistry registry;
    declare_and_allocate(registry, mesh);
    const auto reduction = make_grad_reduction(registry, mesh);
    registry.on_ready([&](ParamId id) { reduction->ready(id); });

    for (int update = 0; update < 2; ++update) {  // the second update starts from zeros again
      reduction->begin();
      registry.begin_update(num_backwards);
      for (int pass = 0; pass < num_backwards; ++pass) {
        for (ParamId id = kParams; id-- > 0;)
          registry.add_gradient({id}, at::full({64}, static_cast<double>(id) + 10 * world.rank()));
      }
      reduction->finish();

      const at::Tensor sums = gathered_grads(registry, world);
      for (std::size_t id = 0; id < kParams; ++id) {
        const double expected =
            num_backwards * (ranks * static_cast<double>(id) + 10.0 * ranks * (ranks - 1) / 2);
        EXPECT_TRUE(
            sums.narrow(0, static_cast<std::int64_t>(id) * 64, 64).eq(expected).all().item<bool>())
            << ranks << " ranks, zero " << config.zero << ", parameter " << id;
      }
    }
  });
}

TEST(GradReduction, SumsOverRanksWhateverTheBucketsAndStages) {
  for (const int ranks : {1, 2, 3}) {
    for (const double bucket_mb : {0.0, 1e-9, kBytesOfTwo, 25.0, -1.0})
      expect_sums(ranks, config_of(0, bucket_mb), 2);
    for (const std::int64_t zero : {1, 2, 3}) expect_sums(ranks, config_of(zero, -1), 2);
  }
  for (const std::int64_t zero : {1, 2, 3}) expect_sums(4, config_of(zero, -1, 2), 3);
}

TEST(GradReduction, HierarchicalSumsAreEqualAndSendOneShardAcrossNodes) {
  constexpr int kRanks = 6;
  const std::vector<int> nodes{0, 0, 0, 1, 1, 1};
  for (const double bucket_mb : {0.0, kBytesOfTwo, 25.0}) {
    ParallelConfig config = config_of(0, bucket_mb);
    config.hierarchical = true;
    expect_sums(kRanks, config, 2, nodes);
    expect_sums(4, config, 2, {0, 1, 0, 1});
    comm::run_ranks(kRanks, [&](comm::Communicator& world) {
      const Mesh mesh(world, config, nodes);
      ParamRegistry registry;
      declare_and_allocate(registry, mesh);
      const auto reduction = make_grad_reduction(registry, mesh);
      registry.on_ready([&](ParamId id) { reduction->ready(id); });
      reduction->begin();
      registry.begin_update(1);
      for (ParamId id = kParams; id-- > 0;) registry.add_gradient({id}, at::ones({64}));
      reduction->finish();

      const auto moved = [](const comm::Communicator& group, const char* operation) {
        return comm::total_traffic(group.traffic(), operation).moved_bytes.value();
      };
      const auto bytes = static_cast<std::uint64_t>(4 * registry.layout().count());
      EXPECT_EQ(moved(*mesh.node_levels()->across, "all_reduce"), bytes / 3);
      EXPECT_EQ(moved(*mesh.node_levels()->node, "reduce_scatter"), bytes * 2 / 3);
      EXPECT_EQ(moved(*mesh.node_levels()->node, "all_gather"), bytes * 2 / 3);
      EXPECT_EQ(moved(mesh.group(Axis::replica), ""), 0U);
    });
  }
}

TEST(GradReduction, BucketsDependOnSizesOnlyAndCutParameters) {
  for (const auto& [bucket_mb, expected] :
       {std::pair{kBytesOfTwo, 4U}, {1.5 * kBytesOfTwo, 3U}, {0.0, 1U}, {1e-9, 8U}}) {
    comm::run_ranks(2, [&, mb = bucket_mb, count = expected](comm::Communicator& world) {
      const Mesh mesh(world, config_of(0, mb));
      ParamRegistry registry;
      registry.begin_unit("wide");
      for (const char* name : {"a", "b", "c"}) registry.declare({.name = name, .shape = {128}});
      registry.begin_unit("narrow");
      for (const char* name : {"d", "e"}) registry.declare({.name = name, .shape = {64}});
      registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
      const auto reduction = make_grad_reduction(registry, mesh);
      registry.on_ready([&](ParamId id) { reduction->ready(id); });
      reduction->begin();
      registry.begin_update(1);
      for (ParamId id = registry.size(); id-- > 0;)
        registry.add_gradient({id}, at::ones(registry.spec(id).shape));
      reduction->finish();

      std::size_t calls = 0;
      for (const comm::CommRecord& record : mesh.group(Axis::replica).recent())
        if (record.operation == "all_reduce") ++calls;
      EXPECT_EQ(calls, count) << mb << " of " << registry.layout().count() << " elements";
    });
  }
}

TEST(GradReduction, BucketsGrowWithTheRanksBetweenTwoBounds) {
  constexpr std::int64_t kMiB = 1024 * 1024;
  EXPECT_EQ(bucket_bytes({}, 4), 25 * kMiB);
  EXPECT_EQ(bucket_bytes({}, 100), 100 * kMiB);
  EXPECT_EQ(bucket_bytes({}, 4096), 256 * kMiB);
  EXPECT_EQ(bucket_bytes(config_of(0, 3), 4096), 3 * kMiB);
}

TEST(GradReduction, LeavesInOrderAndBeforeTheLastGradientIsReady) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    const Mesh mesh(world, config_of(0, 64.0 * 4 / (1024 * 1024)));
    ParamRegistry registry;
    declare_and_allocate(registry, mesh);
    const auto reduction = make_grad_reduction(registry, mesh);
    registry.on_ready([&](ParamId id) { reduction->ready(id); });

    reduction->begin();
    registry.begin_update(1);
    for (const ParamId id : {ParamId{3}, ParamId{4}, ParamId{2}, ParamId{1}, ParamId{0}})
      registry.add_gradient({id, 1}, at::ones({64}));
    reduction->finish();

    const std::vector<comm::CommRecord> records = mesh.group(Axis::replica).recent();
    ASSERT_GE(records.size(), kParams);
    for (std::size_t i = 0; i < records.size(); ++i)
      EXPECT_EQ(records[i].tag, formatted("grads bucket {}", i));
    EXPECT_LT(reduction->times().first_launch_s, reduction->times().last_ready_s);
  });
}

TEST(GradReduction, NothingIsSentBeforeTheLastBackwardPassWhileGradientsAreWhole) {
  for (const std::int64_t zero : {0, 1}) {
    comm::run_ranks(2, [&](comm::Communicator& world) {
      const Mesh mesh(world, config_of(zero, -1));
      ParamRegistry registry;
      declare_and_allocate(registry, mesh);
      const auto reduction = make_grad_reduction(registry, mesh);
      registry.on_ready([&](ParamId id) { reduction->ready(id); });
      comm::Communicator& group = mesh.group(zero == 0 ? Axis::replica : Axis::shard);

      reduction->begin();
      registry.begin_update(2);
      for (ParamId id = kParams; id-- > 0;) registry.add_gradient({id}, at::ones({64}));
      EXPECT_EQ(group.recent().size(), 0U);
      for (ParamId id = kParams; id-- > 0;) registry.add_gradient({id}, at::ones({64}));
      reduction->finish();
      EXPECT_EQ(group.recent().size(), zero == 0 ? 1U : 2U);
    });
  }
}

TEST(GradReduction, ShardedGradientsHoldTwoUnitsWholeAtMost) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    const Mesh mesh(world, config_of(2, -1));
    ParamRegistry registry;
    for (int unit = 0; unit < 6; ++unit) {
      registry.begin_unit(formatted("{}", unit));
      registry.declare({.name = formatted("p{}", unit), .shape = {128}});
    }
    registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
    const auto reduction = make_grad_reduction(registry, mesh);
    registry.on_ready([&](ParamId id) { reduction->ready(id); });
    reduction->begin();
    registry.begin_update(2);
    for (int pass = 0; pass < 2; ++pass)
      for (ParamId id = 6; id-- > 0;) registry.add_gradient({id}, at::ones({128}));
    reduction->finish();

    EXPECT_LE(registry.grads().live_peak_bytes(), 2 * 128 * 4);
    EXPECT_TRUE(registry.grad_part(3).eq(4.0).all().item<bool>());
  });
}

}  // namespace
}  // namespace trireme::parallel
