/// Compares predicted times with published ones. The constants are fitted here, none is written
/// down.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tests/unit/train/planner/published.hpp"
#include "train/planner/layout_memory.hpp"

namespace trireme::planner {
namespace {

TEST(StepTime, ThreeConstantsFitNineMegatronRows) {
  const std::vector<MeasuredStep> steps = megatron_steps();

  const TimeConstants fitted = fit(steps, TimeConstants{}, three_constants());

  const std::vector<double> errors = errors_of(steps, fitted);
  for (std::size_t i = 0; i < errors.size(); ++i)
    std::cout << megatron_rows()[i].preset << " " << 100 * errors[i] << " %\n";
  std::cout << "efficiency " << fitted.efficiency << ", bytes " << fitted.elementwise_bytes
            << ", hidden " << fitted.tp_hidden << ", rms " << 100 * rms(errors) << " %\n";
  EXPECT_LE(rms(errors), 0.06);
}

TEST(StepTime, LeavingOneMegatronRowOutPredictsIt) {
  const std::vector<MeasuredStep> steps = megatron_steps();
  double worst = 0;
  for (std::size_t left = 0; left < steps.size(); ++left) {
    std::vector<MeasuredStep> others = steps;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left));
    const TimeConstants fitted = fit(others, TimeConstants{}, three_constants());
    const double error = errors_of(std::vector{steps[left]}, fitted).front();
    std::cout << megatron_rows()[left].preset << " left out: " << 100 * error << " %\n";
    worst = std::max(worst, std::abs(error));
  }
  EXPECT_LE(worst, 0.16);
}

TEST(StepTime, DefaultsAreTheFit) {
  const TimeConstants usual;

  const TimeConstants fitted = fit(megatron_steps(), usual, three_constants());

  // The constants trade off against one another, so only their joint prediction counts.
  const std::vector<double> errors = errors_of(megatron_steps(), usual);
  EXPECT_NEAR(rms(errors), rms(errors_of(megatron_steps(), fitted)), 1e-3);
}

TEST(StepTime, MegatronRowsWithoutPipelineFitAsTaken) {
  for (const MeasuredStep& step : megatron_steps()) {
    if (step.facts.parallel.pp > 1) continue;
    EXPECT_LE(max_rank_memory(step.facts, step.cluster.device).total(), usable_bytes(step.cluster))
        << step.facts.model.preset;
  }
}

/// torchtitan's Llama 3 8B (benchmarks/llama3_h100_202412_torchtitan.md): FSDP, two sequences of
/// 8192 per GPU, selective activation checkpointing.
MeasuredStep torchtitan_step(int ranks, double tokens_per_s) {
  model::ModelConfig model;
  model.hidden_size = 4096;
  model.num_layers = 32;
  model.num_heads = 32;
  model.num_kv_heads = 8;
  model.intermediate_size = 14336;
  model.tie_embeddings = false;
  model.qk_norm = false;
  model::resolve(model, 128256);
  parallel::ParallelConfig parallel;
  parallel.zero = 3;
  parallel.recompute = "selective";
  const train::UpdateShape shape{2, 8192, 1};
  return {facts_in_bf16(model, parallel, ranks, shape),
          {device_kind("h100"), std::max(1, ranks / 8), 8},
          static_cast<double>(shape.rows * shape.length) / tokens_per_s};
}

TEST(StepTime, OneRowOfTorchtitanPredictsSixteenTimesTheGpus) {
  struct Pair {
    const char* name;
    double on_8;
    double on_128;
  };

  for (const Pair& pair : {Pair{"eager", 5762, 5605}, {"compile", 6667, 6514}}) {
    const std::vector<MeasuredStep> small{torchtitan_step(8, pair.on_8)};
    const std::vector<Constant> efficiency{&TimeConstants::efficiency};

    const TimeConstants fitted = fit(small, TimeConstants{}, efficiency);

    const double error = errors_of(std::vector{torchtitan_step(128, pair.on_128)}, fitted).front();
    std::cout << "torchtitan 8 to 128 GPUs, " << pair.name << ": " << 100 * error << " %\n";
    EXPECT_LE(std::abs(errors_of(small, fitted).front()), 1e-2);
    EXPECT_LE(std::abs(error), 0.03);
  }
}

// ZeRO gives each rank the same number of elements, for every expert-parallel layout.
TEST(StepTime, IsTheSameInTheOptimizerForEveryNumberOfExpertRanks) {
  model::ModelConfig moe = model_of("gpt-1.7b", 32000);
  moe.moe.num_experts = 16;
  moe.moe.moe_intermediate_size = 2048;
  StepPredictor predictor({device_kind("h100"), 1, 8}, TimeConstants{});
  parallel::ParallelConfig parallel;
  parallel.zero = 1;
  const auto seconds = [&] {
    return predictor.predict(facts_in_bf16(moe, parallel, 8, {1, 2048, 1})).optimizer_s;
  };
  const double whole = seconds();
  parallel.ep = 4;
  EXPECT_NEAR(seconds() / whole, 1, 1e-9);
}

}  // namespace
}  // namespace trireme::planner
