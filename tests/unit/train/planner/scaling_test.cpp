#include "train/planner/scaling.hpp"

#include <gtest/gtest.h>

#include <iostream>

#include "core/error.hpp"
#include "train/verify/bench_collectives.hpp"
#include "unit/train/planner/published.hpp"

namespace trireme::planner {
namespace {

std::vector<TimedAllReduce> times_of(const AlphaBeta& model, double noise) {
  std::vector<TimedAllReduce> times;
  for (const int ranks : {2, 4}) {
    for (double bytes = 1024; bytes <= 32e6; bytes *= 2) {
      const double error = times.size() % 4 < 2 ? 1 + noise : 1 - noise;
      times.push_back({ranks, bytes, model.all_reduce_s(ranks, bytes) * error});
    }
  }
  return times;
}

TEST(AlphaBeta, IsFoundFromExactTimesAndPredictsHeldOutSizes) {
  const AlphaBeta truth{12e-6, 1 / 3e9, 0};

  const AlphaBeta fit = fit_alpha_beta(times_of(truth, 0));

  EXPECT_NEAR(fit.alpha_s, truth.alpha_s, 1e-12);
  EXPECT_NEAR(fit.beta_s_per_byte, truth.beta_s_per_byte, 1e-18);
  EXPECT_LT(fit.heldout_error, 1e-9);
  const AlphaBeta noisy = fit_alpha_beta(times_of(truth, 0.1));
  EXPECT_NEAR(noisy.alpha_s, truth.alpha_s, 0.15 * truth.alpha_s);
  EXPECT_GT(noisy.heldout_error, 0.05);
  EXPECT_LT(noisy.heldout_error, 0.2);
  EXPECT_THROW(fit_alpha_beta({{2, 1024, 1e-5}, {2, 2048, 1e-5}, {1, 8, 1e-6}}), Error);
}

TEST(AlphaBeta, FittedLinksGiveTheFittedTimes) {
  const AlphaBeta fit{5e-6, 1 / 20e9, 0};
  const LinkSpeeds sheet = device_kind("h100").links;
  const Network node(with_node_fit(sheet, fit));
  EXPECT_NEAR(node.ring_all_reduce_s(1e6, {8, 8}), fit.all_reduce_s(8, 1e6), 1e-12);
  // With one rank per node, all hops and bytes cross the network.
  const Network network(with_network_fit(sheet, fit, 1));
  EXPECT_NEAR(network.ring_all_reduce_s(1e6, {16, 1}), fit.all_reduce_s(16, 1e6), 1e-12);
}

train::RunConfig small_config() {
  train::RunConfig config;
  config.model = model_of("tiny", 6400);
  config.train.precision = "fp32";
  config.train.seq_len = 128;
  config.train.micro_batch = 4;
  config.train.global_batch = 32;
  config.train.accumulation = 2;
  return config;
}

TEST(ScaledConfig, StrongKeepsTheGlobalBatchAndWeakTheBatchOfARank) {
  const train::RunConfig strong = scaled_config(small_config(), Scaling::strong, 16);
  EXPECT_EQ(strong.train.global_batch, 32);
  EXPECT_EQ(strong.train.micro_batch, 2);
  EXPECT_EQ(strong.train.accumulation, 1);
  const train::RunConfig weak = scaled_config(small_config(), Scaling::weak, 16);
  EXPECT_EQ(weak.train.global_batch, 128);
  EXPECT_EQ(weak.train.micro_batch, 4);
  EXPECT_THROW(scaled_config(small_config(), Scaling::strong, 64), Error);
}

TEST(Scaling, ARankWithOneThreadUsesOneCoreOfItsNode) {
  DeviceKind node = device_kind("cpu");  // 2 cores
  const auto step_s = [&](int ranks) {
    const train::RunConfig config = scaled_config(small_config(), Scaling::weak, ranks);
    return predict_point(config, ranks, scaled_cluster(node, ranks, 2), {}).step_s;
  };
  EXPECT_LT(step_s(1), 0.7 * step_s(2)) << "one rank has all cores";
  node.rank_cores = 1;
  EXPECT_NEAR(step_s(1), step_s(2), 0.2 * step_s(2)) << "two ranks communicate, too";
}

TEST(Scaling, EfficiencyIsRelativeToTheFewestMeasuredRanks) {
  std::vector<ScalingPoint> points{
      {8, 1, 600, 0, 0, true}, {2, 1, 190, 0, 0, false}, {1, 1, 100, 0, 0, false}};
  set_efficiency(points);
  EXPECT_EQ(points[0].ranks, 1);
  EXPECT_DOUBLE_EQ(points[1].efficiency, 0.95);
  EXPECT_DOUBLE_EQ(points[2].efficiency, 0.75);
  const std::string figure = scaling_figure(points, "a < b");
  EXPECT_NE(figure.find("a &lt; b"), std::string::npos);
  EXPECT_NE(figure.find("class=\"predicted\""), std::string::npos);
  EXPECT_NE(figure.find("predicted on 8 ranks"), std::string::npos);
  EXPECT_EQ(figure.find("nan"), std::string::npos);
}

TEST(Scaling, PredictionsSlowDownWithMoreRanks) {
  std::vector<ScalingPoint> points;
  for (const int ranks : {1, 8, 12, 64, 4096}) {
    const train::RunConfig config = scaled_config(small_config(), Scaling::weak, ranks);
    points.push_back(predict_point(config, ranks, scaled_cluster(device_kind("h100"), ranks, 8),
                                   TimeConstants{}));
  }
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i].step_s, points[i - 1].step_s);
    EXPECT_GT(points[i].comm_compute_ratio, points[i - 1].comm_compute_ratio);
    EXPECT_TRUE(points[i].is_predicted);
  }
  EXPECT_EQ(points[0].comm_compute_ratio, 0);
  EXPECT_EQ(points[2].ranks, 12) << "not the 16 ranks of two whole nodes";
}

TEST(Scaling, RareAveragesCostLessThanAReductionInEveryStep) {
  train::RunConfig config = scaled_config(small_config(), Scaling::weak, 64);
  const Cluster cluster = scaled_cluster(device_kind("h100"), 64, 8);
  const auto ratio = [&](std::int64_t local_steps) {
    config.parallel.local_steps = local_steps;
    return predict_point(config, 64, cluster, TimeConstants{}).comm_compute_ratio;
  };
  EXPECT_NEAR(ratio(32), ratio(16) / 2, 0.2 * ratio(16));
  EXPECT_LT(ratio(64), ratio(1));
}

/// Megatron-LM (README, strong scaling): the 177B model with a constant batch of 1152 sequences has
/// an MFU of 47 % on 96 H100 and of 42 % on 4608.
MeasuredStep megatron_strong_step(int ranks, double mfu) {
  MeasuredStep step = measured_step(megatron_rows()[6]);
  const int data = ranks / 48;  // tp 8, pp 6
  const train::UpdateShape shape{1, kMegatronLength, 1152 / data};
  const model::ModelConfig model = model_of("gpt-177b", kMegatronVocabulary);
  step.facts = facts_in_bf16(model, step.facts.parallel, ranks, shape);
  step.cluster.nodes = ranks / 8;
  step.step_s = 1152.0 * kMegatronLength * model.flops_per_token(kMegatronLength) /
                (mfu * step.cluster.device.peak_flops * ranks);
  return step;
}

TEST(Scaling, OneRowOfMegatronPredictsFortyEightTimesTheGpus) {
  const std::vector<MeasuredStep> small{megatron_strong_step(96, 0.47)};
  const std::vector<Constant> efficiency{&TimeConstants::efficiency};

  const TimeConstants fitted = fit(small, TimeConstants{}, efficiency);

  const std::vector<MeasuredStep> large{megatron_strong_step(4608, 0.42)};
  const double error = errors_of(large, fitted).front();
  const double unfitted = errors_of(large, TimeConstants{}).front();
  std::cout << "Megatron 177B, 96 to 4608 GPUs: " << 100 * error
            << " %, with the default constants " << 100 * unfitted << " %\n";
  EXPECT_LE(std::abs(error), 0.15);
  EXPECT_LE(std::abs(unfitted), 0.15);
}

TEST(Scaling, TheMfuOfAPublishedRowIsPredicted) {
  const MeasuredStep step = megatron_strong_step(4608, 0.42);
  EXPECT_NEAR(predicted_mfu(step.facts, step.cluster, 1152.0 * kMegatronLength), 0.42, 0.04);
  EXPECT_EQ(kind_of_device("NVIDIA H100 80GB HBM3"), &device_kind("h100"));
  EXPECT_EQ(kind_of_device("NVIDIA A100-SXM4-80GB"), &device_kind("a100-80"));
  EXPECT_EQ(kind_of_device("Tesla V100-SXM2"), nullptr);
  EXPECT_EQ(kind_of_device("AMD CPU"), nullptr);
  EXPECT_EQ(kind_of_device("NVIDIA GH200 480GB"), nullptr);
  EXPECT_EQ(kind_of_device("NVIDIA H100 PCIe"), nullptr);
  EXPECT_EQ(kind_of_device("H200"), &device_kind("h200"));
}

TEST(Collectives, HaveTheBusFactorsOfNcclTests) {
  EXPECT_DOUBLE_EQ(train::bus_factor("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(train::bus_factor("reduce_scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(train::bus_factor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(train::bus_factor("all_to_all", 4), 0.75);
  EXPECT_DOUBLE_EQ(train::bus_factor("broadcast", 4), 1);
  EXPECT_DOUBLE_EQ(train::bus_factor("send_recv", 4), 1);
}

}  // namespace
}  // namespace trireme::planner
