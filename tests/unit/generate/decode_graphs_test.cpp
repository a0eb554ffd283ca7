#include "generate/decode_graphs.hpp"

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "support/strict_device.hpp"
#include "unit/generate/decode_steps.hpp"

namespace trireme::testing {
namespace {

using namespace generate;

void expect_equal_steps(const SmallOptions& options) {
  const TwoWays steps = decode_two_ways(options);
  EXPECT_LT(steps.difference, 1e-10);  // products of fp64 with another number of rows
  EXPECT_GT(steps.num_launches, steps.num_steps / 2);
}

TEST(DecodeGraphs, LaunchedStepsEqualStepsWithoutGraphs) {
  expect_equal_steps({});
}

TEST(DecodeGraphs, LaunchedStepsOfAModelWithWindowsAndSmearEqualStepsWithoutGraphs) {
  expect_equal_steps({.change = [](model::ModelConfig& config) {
    config.sliding_window = 20;
    config.full_attention_layers = "1";
    config.smear = true;
  }});
}

TEST(DecodeGraphs, ALaunchedStepUploadsOnceAndWaitsForNothing) {
  const SmallModel small({.dtype = at::kBFloat16, .device = strict_device()});
  const model::KvCache cache = small.model->make_cache(kBlocks);
  DecodeGraphs graphs(*small.model, cache);
  Sequences sequences({1, 1, 1});
  for (int i = 0; i < 3; ++i) graphs.compute_rows(sequences.step({0, 1, 2}, 1));

  const StepRows rows = sequences.step({2, 0, 1}, 1);
  const std::int64_t before = graphs.num_launches();
  const HostWaits record;
  graphs.compute_rows(rows);

  EXPECT_EQ(graphs.num_launches(), before + 1);
  EXPECT_EQ(record.waits(), std::vector<std::string>());
  EXPECT_EQ(record.uploads(), 1);
}

/// Counts the stores to a KV cache on the plain path, while it exists.
class StoreCount {
 public:
  StoreCount() : handle_(at::addGlobalCallback(at::RecordFunctionCallback(count))) {
    all = deterministic = 0;
  }

  ~StoreCount() { at::removeCallback(handle_); }

  StoreCount(const StoreCount&) = delete;
  StoreCount& operator=(const StoreCount&) = delete;

  static inline int all = 0;
  static inline int deterministic = 0;

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
    if (std::string_view(call.name()) != "aten::index_put_") return nullptr;
    ++all;
    deterministic += at::globalContext().deterministicAlgorithms() ? 1 : 0;
    return nullptr;
  }

  at::CallbackHandle handle_;
};

TEST(DecodeGraphs, TheSecondStepOfAShapeRunsPaddedBeforeItsCapture) {
  const SmallModel small;
  const model::KvCache cache = small.model->make_cache(kBlocks);
  DecodeGraphs graphs(*small.model, cache);
  Sequences sequences({1, 1, 1});
  const auto stores_of_a_step = [&] {
    const StoreCount count;
    graphs.compute_rows(sequences.step({0, 1, 2}, 1));
    return StoreCount::all;
  };
  const int one = stores_of_a_step();
  EXPECT_GT(one, 0);
  EXPECT_EQ(stores_of_a_step(), 3 * one) << "without a graph, padded, and as a graph";
  EXPECT_EQ(stores_of_a_step(), one);
}

TEST(DecodeGraphs, StoresToTheCacheAreNotDeterministicKernels) {
  const SmallModel small;
  const model::KvCache cache = small.model->make_cache(kBlocks);
  Sequences sequences({4});
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  {
    const StoreCount count;
    compute_rows(*small.model, sequences.step({0}, 4), cache, nullptr);
    EXPECT_GT(StoreCount::all, 0);
    EXPECT_EQ(StoreCount::deterministic, 0);
  }
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().deterministicAlgorithmsWarnOnly());
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST(DecodeGraphs, AShapeIsRoundedUpAndOtherStepsHaveNone) {
  const auto shape_of = [](std::size_t rows, std::int64_t before) {
    StepRows step;
    for (std::size_t row = 0; row < rows; ++row) {
      step.kept.push_back(static_cast<std::int64_t>(row));
      step.tokens.push_back(1);
      step.texts.push_back({static_cast<std::int64_t>(row), 1, row == 0 ? before : 0, {}});
    }
    return decode_shape(step);
  };
  EXPECT_EQ(shape_of(1, 0), (DecodeShape{1, 8}));
  EXPECT_EQ(shape_of(3, 127), (DecodeShape{4, 8}));
  EXPECT_EQ(shape_of(4, 128), (DecodeShape{4, 10}));
  EXPECT_EQ(shape_of(5, 16 * 16), (DecodeShape{8, 20}));
  EXPECT_EQ(shape_of(256, 511), (DecodeShape{256, 32}));
  EXPECT_EQ(shape_of(256, 512), std::nullopt);  // too many tokens
  EXPECT_EQ(shape_of(257, 0), std::nullopt);
  EXPECT_EQ(shape_of(0, 0), std::nullopt);
  StepRows partly = Sequences({2, 2}).step({0, 1}, 1);
  EXPECT_TRUE(decode_shape(partly));
  partly.kept.pop_back();
  EXPECT_FALSE(decode_shape(partly));
  EXPECT_FALSE(decode_shape(Sequences({2, 2}).step({0, 1}, 2)));
}

TEST(DecodeGraphs, AModelOnACpuHasNoGraphs) {
  const SmallModel small;
  EXPECT_EQ(reason_against_decode_graphs(*small.model, 1), "the model is not on a GPU");
  EXPECT_THROW(GenerationEngine(*small.model, small.tokenizer, {.cuda_graph = "yes"}), Error);
}

}  // namespace
}  // namespace trireme::testing
