#include "parallel/grad_buckets.hpp"

#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"

namespace trireme {
namespace {

constexpr double kBytesOfTwo = 2.0 * 64 * 4 / (1024 * 1024);  // MiB of two parameters below

void declare_and_allocate(ParamRegistry& registry, const Mesh& mesh, int count) {
  for (int i = 0; i < count; ++i) registry.declare({.name = formatted("p{}", i), .shape = {64}});
  registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
}

TEST(GradBuckets, SumsOverRanksWhateverTheBucketSize) {
  for (const int ranks : {1, 2, 3}) {
    for (const double bucket_mib : {0.0, 1e-9, kBytesOfTwo, 25.0}) {
      run_ranks(ranks, [&](Communicator& world) {
        const Mesh mesh(world, {});
        ParamRegistry registry;
        declare_and_allocate(registry, mesh, 5);
        GradBuckets buckets(registry, mesh.group(Axis::data), bucket_mib);
        registry.on_ready([&](ParamId id) { buckets.ready(id); });

        buckets.begin();
        registry.begin_update(1);
        for (ParamId id = 5; id-- > 0;)
          registry.add_gradient(
              {id},
              at::full({64}, static_cast<double>(id + 10 * static_cast<ParamId>(world.rank()))));
        buckets.finish();

        for (ParamId id = 0; id < 5; ++id) {
          const double expected = ranks * static_cast<double>(id) + 10.0 * ranks * (ranks - 1) / 2;
          EXPECT_TRUE(registry.main_grad(id).equal(at::full({64}, static_cast<float>(expected))))
              << ranks << " ranks, parameter " << id;
        }
      });
    }
  }
}

TEST(GradBuckets, AssignmentDependsOnSizesOnly) {
  run_ranks(2, [](Communicator& world) {
    const Mesh mesh(world, {});
    ParamRegistry registry;
    declare_and_allocate(registry, mesh, 5);
    Communicator& group = mesh.group(Axis::data);
    const auto sent = [&](double bucket_mib) {
      GradBuckets buckets(registry, group, bucket_mib);
      const std::uint64_t before = group.counters().operations;
      buckets.begin();
      for (ParamId id = 5; id-- > 0;) buckets.ready(id);
      buckets.finish();
      return group.counters().operations - before;
    };

    EXPECT_EQ(sent(kBytesOfTwo), 3U);
    EXPECT_EQ(sent(0), 1U);
    EXPECT_EQ(sent(1e-9), 5U);
  });
}

TEST(GradBuckets, LeavesInOrderAndBeforeTheLastGradientIsReady) {
  run_ranks(2, [](Communicator& world) {
    const Mesh mesh(world, {});
    ParamRegistry registry;
    declare_and_allocate(registry, mesh, 4);
    GradBuckets buckets(registry, mesh.group(Axis::data), 1e-9);
    registry.on_ready([&](ParamId id) { buckets.ready(id); });

    buckets.begin();
    registry.begin_update(1);
    for (const ParamId id : {ParamId{2}, ParamId{3}, ParamId{1}, ParamId{0}})
      registry.add_gradient({id, 1}, at::ones({64}));
    buckets.finish();

    const std::vector<CommRecord> records = mesh.group(Axis::data).recent();
    ASSERT_EQ(records.size(), 4U);
    for (std::size_t i = 0; i < records.size(); ++i)
      EXPECT_EQ(records[i].tag, formatted("grads bucket {}", i));
    EXPECT_LT(buckets.times().first_launch_s, buckets.times().last_ready_s);
  });
}

}  // namespace
}  // namespace trireme
