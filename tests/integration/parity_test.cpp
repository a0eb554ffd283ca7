/// One update gives the same result for every distribution over ranks, gradient-accumulation steps
/// and buckets: losses, norms, every gradient and the final weights, in fp64.

#include <gtest/gtest.h>

#include "comm/traffic.hpp"
#include "core/error.hpp"
#include "core/process/failpoints.hpp"
#include "support/train_layout.hpp"

namespace trireme {
namespace {

using testing::Layout;
using testing::Shape;
using testing::Trace;
using testing::train;

constexpr double kTolerance =
    1e-10;  // relative; fp64 sums of 1e3 terms in another order differ by about 1e-13

constexpr std::size_t kSteps = 4;

double relative(const at::Tensor& value, const at::Tensor& expected) {
  return (value - expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

void expect_same(const Layout& layout, const Shape& shape, const Trace& expected,
                 const std::string& name) {
  for (const Trace& trace : train(layout, shape)) {
    for (std::size_t i = 0; i < kSteps; ++i) {
      EXPECT_NEAR(trace.losses[i], expected.losses[i], kTolerance * expected.losses[i])
          << name << ", loss of step " << i + 1;
      EXPECT_NEAR(trace.norms[i], expected.norms[i], kTolerance * expected.norms[i])
          << name << ", norm of step " << i + 1;
      EXPECT_LT(relative(trace.grads[i], expected.grads[i]), kTolerance)
          << name << ", gradients of step " << i + 1;
    }
    EXPECT_LT(relative(trace.weights, expected.weights), kTolerance) << name << ", final weights";
  }
}

struct NamedLayout {
  const char* name;
  Layout layout;
};

constexpr double kSmallBuckets = 1e-9;  // 64 elements
constexpr double kFewBuckets = 0.01;    // 10 KiB of 60

parallel::ParallelConfig cut(double bucket_mb, const char* recompute = "none") {
  parallel::ParallelConfig config;
  config.bucket_mb = bucket_mb;
  config.recompute = recompute;
  return config;
}

parallel::ParallelConfig zero(std::int64_t stage, std::int64_t shard = 0,
                              const char* recompute = "none") {
  parallel::ParallelConfig config;
  config.zero = stage;
  config.zero_shard = shard;
  config.recompute = recompute;
  return config;
}

std::vector<NamedLayout> layouts() {
  using ops::Path;
  return {
      {"1 rank, 3 micro-steps", {{12}, 4, cut(25), ops::Path::plain}},
      {"1 rank, recompute", {{12}, 12, cut(0, "full"), ops::Path::plain}},
      {"1 rank, fast path", {{12}, 12, cut(0), ops::Path::fast}},
      {"2 ranks", {{6, 6}, 6, cut(0), ops::Path::plain}},
      {"2 ranks, 3 micro-steps, smallest buckets",
       {{6, 6}, 2, cut(kSmallBuckets), ops::Path::plain}},
      {"2 ranks, 3 micro-steps, recompute, few buckets",
       {{6, 6}, 2, cut(kFewBuckets, "full"), ops::Path::plain}},
      {"3 uneven ranks, one without samples", {{7, 5, 0}, 4, cut(kFewBuckets), ops::Path::plain}},
      {"3 uneven ranks, uneven micro-steps", {{1, 8, 3}, 3, cut(kSmallBuckets), ops::Path::fast}},
      {"4 ranks", {{3, 3, 3, 3}, 3, cut(kSmallBuckets), ops::Path::plain}},
      {"2 ranks, ZeRO-1", {{6, 6}, 2, zero(1), ops::Path::plain}},
      {"2 ranks, ZeRO-2", {{6, 6}, 2, zero(2), ops::Path::plain}},
      {"2 ranks, ZeRO-3", {{6, 6}, 2, zero(3), ops::Path::plain}},
      {"3 ranks, ZeRO-1, one without samples", {{7, 5, 0}, 4, zero(1), ops::Path::plain}},
      {"3 uneven ranks, ZeRO-3, recompute", {{5, 4, 3}, 5, zero(3, 0, "full"), ops::Path::fast}},
      {"4 ranks, 2 copies of 2, ZeRO-2", {{3, 3, 3, 3}, 1, zero(2, 2), ops::Path::plain}},
      {"4 ranks, 2 copies of 2, ZeRO-3", {{3, 3, 3, 3}, 3, zero(3, 2), ops::Path::plain}},
      {"4 ranks, 3 micro-steps", {{3, 3, 3, 3}, 1, cut(kFewBuckets, "full"), ops::Path::fast}},
  };
}

void expect_all_layouts_same(const Shape& shape) {
  const Trace expected = train({}, shape).front();
  ASSERT_GT(expected.norms.front(), 0.01);
  for (const NamedLayout& one : layouts()) expect_same(one.layout, shape, expected, one.name);
}

TEST(Parity, HoldsForTheQwen3ShapeWithTiedEmbedding) {
  expect_all_layouts_same({});
}

TEST(Parity, HoldsForTheLlamaShapeWithItsOwnHead) {
  expect_all_layouts_same({"minimind-2", false, 0.1, 0});
}

TEST(Parity, HoldsWhileTheClipIsActive) {
  const Shape clipped{"tiny", false, 0.0, 1e-2};
  const Trace expected = train({}, clipped).front();
  for (std::size_t i = 0; i < kSteps; ++i) {
    EXPECT_GT(expected.norms[i], 2e-2) << "the clip must bite";
    EXPECT_NEAR(expected.grads[i].norm().item<double>(), 1e-2,
                1e-5);  // the clip adds 1e-6 to the divisor
  }
  expect_same({{6, 6}, 2, cut(kFewBuckets), ops::Path::plain}, clipped, expected, "2 ranks");
  expect_same({{3, 3, 3, 3}, 1, cut(0, "full"), ops::Path::plain}, clipped, expected, "4 ranks");
}

TEST(Parity, HoldsWhenAWholeShareHasNoTargets) {
  // Sample 4 of the first update has only documents of one token. One rank gets this sample alone.
  ASSERT_EQ(train::make_rows({4}, Shape{}.length, Shape{}.vocab).num_targets, 0);
  const Shape shape;
  expect_same({{4, 1, 7}, 7, cut(kFewBuckets), ops::Path::plain}, shape, train({}, shape).front(),
              "a share without targets");
}

TEST(Parity, SeesWhatWouldBeMissed) {
  // Dropout is on, and seeds and rows must matter: runs with different ones differ.
  const Trace with = train({}, {}).front();
  const Trace without = train({}, {"tiny", true, 0.0, 0}).front();
  EXPECT_GT(relative(with.grads[0], without.grads[0]), 1e-3);
  EXPECT_GT(relative(with.grads[1], with.grads[0]), 1e-3);
}

parallel::ParallelConfig tensor(std::int64_t tp, bool sequence = false,
                                std::int64_t zero_stage = 0) {
  parallel::ParallelConfig config = zero(zero_stage);
  config.tp = tp;
  config.sequence_parallel = sequence;
  return config;
}

void expect_tensor_layouts_same(const Shape& shape) {
  const Trace expected = train({}, shape).front();
  for (const bool sequence : {false, true}) {
    for (const ops::Path path : {ops::Path::plain, ops::Path::fast}) {
      const std::string name =
          std::string(sequence ? "sequence" : "tensor") + (path == ops::Path::fast ? ", fast" : "");
      expect_same({{12}, 6, tensor(2, sequence), path}, shape, expected, name + ", tp 2");
      expect_same({{12}, 12, tensor(3, sequence), path}, shape, expected, name + ", tp 3");
    }
    expect_same({{6, 6}, 3, tensor(2, sequence), ops::Path::plain}, shape, expected, "dp 2 tp 2");
    parallel::ParallelConfig all = tensor(2, sequence, 3);
    all.recompute = "full";
    expect_same({{6, 6}, 3, all, ops::Path::plain}, shape, expected, "ZeRO-3, tp 2, recompute");
    expect_same({{6, 6}, 3, tensor(2, sequence, 1), ops::Path::plain}, shape, expected, "ZeRO-1");
  }
}

TEST(Parity, HoldsForTensorParallelWithTiedEmbeddingAndNormedHeads) {
  expect_tensor_layouts_same({});
}

TEST(Parity, HoldsForTensorParallelWithOddSizesAndAnActiveClip) {
  // 5 query heads read one key head. No size but the length is a multiple of 2 or 3.
  Shape odd{.preset = "minimind-2", .tied = false, .dropout = 0.1, .clip_norm = 1e-2};
  odd.num_heads = 5;
  odd.num_kv_heads = 1;
  odd.intermediate_size = 25;
  odd.vocab = 41;
  expect_tensor_layouts_same(odd);
}

TEST(Parity, HoldsWhereQueryHeadsOfARankReadUnequalNumbersOfKeyHeads) {
  Shape uneven;
  uneven.num_heads = 6;  // tp 3: the middle rank reads both key heads
  expect_tensor_layouts_same(uneven);
  uneven.num_heads = 9;
  uneven.num_kv_heads = 3;  // tp 2: 4 and 5 query heads, 2 key heads on each rank
  expect_tensor_layouts_same(uneven);
}

TEST(Parity, ZeroStagesGiveTheBitsOfDataParallel) {
  // Sums run in rank order for every distribution. With one micro-batch there is no other sum.
  const Trace expected = train({{6, 6}, 6, {}, ops::Path::fast}, {}).front();
  for (const std::int64_t stage : {1, 2, 3}) {
    const Trace trace = train({{6, 6}, 6, zero(stage), ops::Path::fast}, {}).front();
    EXPECT_TRUE(trace.weights.equal(expected.weights)) << stage;
    EXPECT_EQ(trace.norms, expected.norms) << stage;
  }
}

/// Trains reproducibly on `ranks` data ranks. Micro-batches of two samples are distributed
/// round-robin, like the loader does.
Trace train_reproducibly(int ranks, const parallel::ParallelConfig& parallel, const Shape& shape,
                         const device::ParamDTypes& dtypes) {
  Trace result;
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    train::TrialPlan plan;
    plan.model = testing::model_config(shape);
    plan.parallel = parallel;
    plan.parallel.reproducible = true;
    plan.optim.clip_norm = 0.1;  // small enough to take effect
    plan.dtypes = dtypes;
    plan.path = ops::Path::fast;
    plan.targets = [&](std::int64_t step) {
      return testing::targets_of_update(shape, step * shape.samples);
    };
    plan.batches = [&](int rank, std::int64_t step) {
      std::vector<data::Batch> batches;
      for (std::int64_t at = 2 * rank; at < shape.samples; at += 2 * ranks) {
        const std::int64_t first = step * shape.samples + at;
        batches.push_back(train::make_rows({first, first + 1}, shape.length, shape.vocab));
      }
      return batches;
    };
    Trace trace = train::run_trial(world, plan);
    if (world.rank() == 0) result = std::move(trace);
  });
  return result;
}

TEST(Parity, ReproducibleSumsGiveTheBitsOfOneProcessOnEveryNumberOfDataRanks) {
  const Shape tied;
  const Shape untied{"minimind-2", false, 0.1, 0};
  for (const Shape& shape : {tied, untied}) {
    for (const device::ParamDTypes dtypes :
         {device::ParamDTypes{at::kFloat}, device::ParamDTypes{at::kBFloat16}}) {
      const Trace expected = train_reproducibly(1, {}, shape, dtypes);
      const auto expect_bits = [&](int ranks, const parallel::ParallelConfig& parallel) {
        const Trace trace = train_reproducibly(ranks, parallel, shape, dtypes);
        EXPECT_TRUE(trace.weights.equal(expected.weights))
            << ranks << " ranks, ZeRO " << parallel.zero << ", shard " << parallel.zero_shard;
        EXPECT_EQ(trace.norms, expected.norms);
      };
      for (const std::int64_t stage : {0, 1, 2, 3}) {
        for (const int ranks : {2, 3, 6}) expect_bits(ranks, zero(stage));
      }
      expect_bits(6, zero(3, 2));
      expect_bits(6, zero(1, 3));
    }
  }
}

TEST(Parity, ReproducibleSumsAreAsExactWhereWeightsAreCutOverTheirDimensions) {
  parallel::ParallelConfig config = zero(3);
  config.tp = 2;
  config.sequence_parallel = true;
  config.reproducible = true;
  expect_same({{6, 6}, 3, config, ops::Path::plain}, {}, train({}, {}).front(), "dp 2 tp 2");
}

TEST(Parity, RepeatedRunsGiveTheSameBits) {
  const Layout layout{{6, 6}, 2, cut(kFewBuckets), ops::Path::plain};
  const std::vector<Trace> first = train(layout, {});
  const std::vector<Trace> second = train(layout, {});
  EXPECT_TRUE(first[0].weights.equal(second[0].weights));
  EXPECT_TRUE(first[0].weights.equal(first[1].weights));
  EXPECT_EQ(first[0].losses, second[0].losses);
}

TEST(Overlap, TheFirstBucketLeavesBeforeTheLastGradientIsReadyAndBytesAreAsCounted) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    const model::ModelConfig config = testing::model_config({});
    const parallel::Mesh mesh(world, cut(kSmallBuckets));
    parallel::ParamRegistry registry;
    model::Transformer model(registry, config, {});
    registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
    model.prepare();
    registry.initialize(7);
    const auto optimizer = optim::make_optimizer({}, registry);
    optim::LossScaler scaler(false);
    comm::Communicator& group = mesh.group(parallel::Axis::replica);
    objective::CrossEntropy objective(registry, model.head_weight(), ops::Path::fast);
    Measures measures;
    train::Step step({model, objective, *optimizer, scaler, mesh, measures}, 1.0);
    const Layout layout{{6, 6}, 3, cut(kSmallBuckets), ops::Path::fast};
    const std::vector<comm::TrafficRow> before = group.traffic();

    const train::UpdateResult result = step.run(testing::share_of(layout, {}, world.rank(), 0),
                                                testing::targets_of_update({}, 0), 1, 1, 1e-3);

    EXPECT_GT(result.overlap.first_launch_s, 0);
    EXPECT_LT(result.overlap.first_launch_s, result.overlap.last_ready_s);
    EXPECT_GE(result.overlap.comm_s,
              // The time includes the whole wait, up to the resolution of the clock.
              result.overlap.exposed_s - 1e-3);
    const std::vector<comm::CommRecord> records = group.recent();
    ASSERT_EQ(records.size(), static_cast<std::size_t>(registry.layout().count()) / 64);
    for (std::size_t i = 0; i < records.size(); ++i)
      EXPECT_EQ(records[i].tag, formatted("grads bucket {}", i));
    // Each gradient is sent once in fp32, for any number of gradient-accumulation steps. Each of n
    // ranks sends 2 (n - 1) / n of it.
    const auto bytes = static_cast<std::uint64_t>(registry.layout().count()) * 4;
    const std::vector<comm::TrafficRow> rows = comm::traffic_between(before, group.traffic());
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows.front().operation, "all_reduce");
    EXPECT_EQ(rows.front().purpose, "grads bucket");
    EXPECT_EQ(rows.front().count, records.size());
    EXPECT_EQ(rows.front().payload_bytes, bytes);
    EXPECT_EQ(rows.front().moved_bytes, bytes);
  });
}

TEST(Overflow, OnOneRankSkipsTheUpdateOnAll) {
  // Thread ranks share one failpoint counter: the first backward pass of either rank overflows.
  ::setenv("TRIREME_ALLOW_FAULTS", "1", 1);
  ::setenv("TRIREME_FAULT", "train.overflow:*:1:trigger", 1);
  failpoints_init(0);
  comm::run_ranks(2, [](comm::Communicator& world) {
    const model::ModelConfig config = testing::model_config({});
    const parallel::Mesh mesh(world, {});
    parallel::ParamRegistry registry;
    model::Transformer model(registry, config, {});
    registry.allocate(mesh, {at::kHalf, at::kFloat}, at::kCPU);
    model.prepare();
    registry.initialize(7);
    const auto optimizer = optim::make_optimizer({}, registry);
    optim::LossScaler scaler(true);
    scaler.restore(1024.0, 5);
    objective::CrossEntropy objective(registry, model.head_weight(), ops::Path::fast);
    Measures measures;
    train::Step step({model, objective, *optimizer, scaler, mesh, measures}, 1.0);
    const at::Tensor before = parallel::gathered_weights(registry, world);
    const Layout layout{{6, 6}, 6, cut(kFewBuckets), ops::Path::fast};
    const std::vector<data::Batch> batches = testing::share_of(layout, {}, world.rank(), 0);

    const train::UpdateResult overflowed =
        step.run(batches, testing::targets_of_update({}, 0), 1, 1, 1e-3);

    EXPECT_TRUE(overflowed.skipped);
    EXPECT_TRUE(parallel::gathered_weights(registry, world).equal(before));
    EXPECT_EQ(scaler.scale(), 512.0);
    EXPECT_EQ(scaler.good_steps(), 0);
    const train::UpdateResult good =
        step.run(batches, testing::targets_of_update({}, 0), 2, 1, 1e-3);
    EXPECT_FALSE(good.skipped);
    EXPECT_FALSE(parallel::gathered_weights(registry, world).equal(before));
    EXPECT_EQ(scaler.good_steps(), 1);
  });
}

}  // namespace
}  // namespace trireme
