/// Compares predicted bytes with those that Megatron-LM measured on eight H100 (functional tests
/// gpt3_7b_tp1_pp4 and tp4_pp1 of its repository, golden values of dgx_h100).

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <iostream>

#include "tests/unit/train/planner/published.hpp"
#include "train/cost/memory_formula.hpp"
#include "train/planner/layout_memory.hpp"

namespace trireme::planner {
namespace {

constexpr double kGB = 1e9;

/// Returns the measured model. Its MLP has a width of 16384 without a gate: as many weights as a
/// gated MLP of two thirds.
model::ModelConfig measured_model() {
  model::ModelConfig model;
  model.hidden_size = 4096;
  model.num_layers = 32;
  model.num_heads = 32;
  model.num_kv_heads = 8;
  model.intermediate_size = 16384 * 2 / 3;
  model.tie_embeddings = false;
  model.qk_norm = false;
  model::resolve(model, 131073);
  return model;
}

struct Bytes {
  double held = 0;  // between updates
  double peak = 0;
};

/// Returns the bytes of the rank with the highest use. The measurement includes only tensors, with
/// all logits at once: in 16 bits, in 32 bits (which become exponentials and gradients), and the
/// gradient in 16 bits.
Bytes predicted(const parallel::ParallelConfig& parallel, const train::UpdateShape& shape) {
  const train::UpdateFacts facts = facts_in_bf16(measured_model(), parallel, 8, shape);
  DeviceKind device = device_kind("h100");
  device.held_bytes = 0;
  Bytes most;
  for (int rank = 0; rank < parallel.pp; ++rank) {
    const LayoutMemory one = layout_memory(facts, device, rank, {shape.rows * shape.length, 8});
    most.held = std::max(most.held, one.weights + one.main + one.grads + one.optimizer);
    most.peak = std::max(most.peak, one.total());
  }
  return most;
}

void expect_within(double predicted, double measured, double bound, const char* what) {
  std::cout << what << ": " << predicted / kGB << " predicted, " << measured / kGB << " measured, "
            << 100 * (predicted / measured - 1) << " %\n";
  EXPECT_NEAR(predicted / measured, 1, bound) << what;
}

TEST(LayoutMemory, APipelineHasTheMeasuredMemory) {
  parallel::ParallelConfig parallel;
  parallel.pp = 4;
  parallel.schedule = "interleaved";
  parallel.virtual_stages = 8;
  parallel.stages = "E1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1|1H";
  parallel.zero = 1;

  const Bytes bytes = predicted(parallel, {1, 8192, 4});

  expect_within(bytes.held, 24.81 * kGB, 0.1, "held, tp1 pp4");
  expect_within(bytes.peak, 60.72 * kGB, 0.1, "peak, tp1 pp4");
}

TEST(LayoutMemory, TensorParallelRanksHaveTheMeasuredMemory) {
  parallel::ParallelConfig parallel;
  parallel.tp = 4;
  parallel.zero = 1;

  const Bytes bytes = predicted(parallel, {2, 8192, 2});

  // The measured program saves the results of the activation function, which backward computes
  // again here.
  constexpr double kSavedThere = 32.0 * 2 * 8192 * (10922.0 / 4) * 2;
  expect_within(bytes.held, 20.66 * kGB, 0.1, "held, tp4 pp1");
  expect_within(bytes.peak + kSavedThere, 57.14 * kGB, 0.1, "peak, tp4 pp1");
}

TEST(LayoutMemory, IsTheFormulasOfStatesAndNeverBelowTheLeast) {
  const model::ModelConfig model = model_of("gpt-7.1b", 131072);
  const auto parameters = static_cast<double>(model.num_parameters());
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    parallel::ParallelConfig parallel;
    parallel.zero = zero;
    const train::UpdateFacts facts = facts_in_bf16(model, parallel, 64, {1, 4096, 1});
    const LayoutMemory memory = layout_memory(facts, device_kind("h100"), 0);
    const double d = 64;
    const double a_parameter[] = {18, 6 + 12 / d, 2 + 16 / d, 18 / d};

    // Padding of units: below a thousandth.
    EXPECT_NEAR((memory.weights + memory.main + memory.grads + memory.optimizer) / parameters /
                    a_parameter[zero],
                1, 1e-3)
        << "zero " << zero;
    EXPECT_LE(min_memory(facts), memory.total());
  }
}

TEST(LayoutMemory, ASoftCapOfAttentionAddsTheScoresOfAllPairs) {
  model::ModelConfig model = model_of("gpt-1.7b", 32000);  // 16 heads
  parallel::ParallelConfig parallel;
  parallel.tp = 2;
  const auto activations = [&] {
    return layout_memory(facts_in_bf16(model, parallel, 2, {3, 1000, 1}), device_kind("h100"), 0)
        .activations;
  };
  const double before = activations();

  model.attention_softcap = 50;

  EXPECT_DOUBLE_EQ(activations() - before, 4.0 * 4 * 3 * (16 / 2) * 1000 * 1000);
}

TEST(LayoutMemory, TheMeanRankIsNotAboveTheWorstRank) {
  model::ModelConfig moe = model_of("gpt-1.7b", 32000);
  moe.moe.num_experts = 16;
  moe.moe.moe_intermediate_size = 2048;
  std::vector<std::pair<model::ModelConfig, parallel::ParallelConfig>> layouts;
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    parallel::ParallelConfig parallel;
    parallel.zero = zero;
    parallel.reproducible = true;
    layouts.emplace_back(model_of("gpt-1.7b", 32000), parallel);
    parallel.reproducible = false;
    parallel.tp = 2;
    parallel.ep = 4;
    layouts.emplace_back(moe, parallel);
    parallel.etp = 1;
    layouts.emplace_back(moe, parallel);
  }
  for (const std::int64_t lora_rank : {0, 4}) {
    for (const auto& [model, parallel] : layouts) {
      train::UpdateFacts facts = facts_in_bf16(model, parallel, 8, {1, 2048, 1});
      if (!model.moe.on()) facts.lora.rank = lora_rank;
      const LayoutMemory worst = max_rank_memory(facts, device_kind("h100"));
      const double state = worst.weights + worst.main + worst.grads + worst.optimizer;
      EXPECT_LE(min_memory(facts), state * (1 + 1e-12)) << "zero " << parallel.zero;
      EXPECT_GE(min_memory(facts), 0.97 * state) << "zero " << parallel.zero;
    }
  }
}

void expect_equal(const LayoutMemory& one, const LayoutMemory& other) {
  LayoutMemory::fields(one, [&](const char* name, double bytes) {
    LayoutMemory::fields(other, [&](const char* also, double there) {
      if (std::string(name) == also) {
        EXPECT_EQ(bytes, there) << name;
      }
    });
  });
}

// The formula itself counts every micro-batch of a list.
TEST(LayoutMemory, ManyMicroBatchesEqualFewWithoutTheirList) {
  const model::ModelConfig model = model_of("gpt-1.7b", 32000);
  const DeviceKind& device = device_kind("h100");
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    parallel::ParallelConfig parallel;
    parallel.zero = zero;
    parallel.zero_prefetch = 3;
    train::UpdateFacts facts = facts_in_bf16(model, parallel, 8, {1, 2048, 40});
    const train::RankMemory all = train::memory_formula(facts, 0);
    const LayoutMemory memory = layout_memory(facts, device, 0);
    EXPECT_EQ(memory.buffers, static_cast<double>(all.gathered_peak_bytes) + device.held_bytes);
    facts.micro_steps = 10'000'000;
    const std::clock_t begin = std::clock();
    expect_equal(layout_memory(facts, device, 0), memory);
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 0.2);
  }
  parallel::ParallelConfig gpipe;
  gpipe.pp = 4;
  gpipe.schedule = "gpipe";
  train::UpdateFacts facts = facts_in_bf16(model, gpipe, 8, {1, 2048, 40});
  const double all = static_cast<double>(train::memory_formula(facts, 0).activation_peak_bytes);
  train::UpdateFacts one = facts;
  one.micro_steps = 1;
  const double of_one = static_cast<double>(train::memory_formula(one, 0).activation_peak_bytes);
  EXPECT_EQ(layout_memory(facts, device, 0).activations - layout_memory(one, device, 0).activations,
            all - of_one);
}

TEST(LayoutMemory, TheWorstRankIsNotBelowAnyRank) {
  parallel::ParallelConfig uneven;
  uneven.pp = 4;
  uneven.stages = "E2|2|18|2H";
  parallel::ParallelConfig even;
  even.pp = 8;
  model::ModelConfig moe = model_of("gpt-1.7b", 32000);
  moe.moe.num_experts = 16;
  moe.moe.moe_intermediate_size = 2048;
  moe.moe.first_dense_layers = 8;
  const model::ModelConfig dense = model_of("gpt-1.7b", 32000);
  for (const auto& [model, parallel] :
       {std::pair{dense, uneven}, {dense, even}, {moe, even}, {moe, uneven}}) {
    const train::UpdateFacts facts = facts_in_bf16(model, parallel, 8, {1, 2048, 16});
    const double worst = max_rank_memory(facts, device_kind("h100")).total();
    double most = 0;
    for (int rank = 0; rank < parallel.pp; ++rank)
      most = std::max(most, layout_memory(facts, device_kind("h100"), rank).total());
    EXPECT_EQ(worst, most) << parallel.stages << ", experts " << model.moe.num_experts;
  }
}

TEST(LayoutMemory, EveryStageIsKnownUnderEverySchedule) {
  const model::ModelConfig model = model_of("gpt-1.7b", 32000);
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-v", "dualpipe-v"}) {
    for (const std::int64_t zero : {0, 1, 2, 3}) {
      parallel::ParallelConfig parallel;
      parallel.pp = 4;
      parallel.schedule = schedule;
      parallel.zero = zero;
      const train::UpdateFacts facts = facts_in_bf16(model, parallel, 8, {1, 2048, 8});
      for (int rank = 0; rank < 4; ++rank) {
        const LayoutMemory memory = layout_memory(facts, device_kind("h100"), rank);
        LayoutMemory::fields(memory, [&](const char* name, double bytes) {
          EXPECT_GE(bytes, 0) << schedule << " zero " << zero << " " << name;
        });
      }
    }
  }
}

}  // namespace
}  // namespace trireme::planner
