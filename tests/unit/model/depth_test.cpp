/// Compares the models of nanochat's depths with its published sizes, and with its rules written
/// anew in whole numbers.

#include <gtest/gtest.h>

#include <cmath>

#include "model/depth_rule.hpp"

namespace trireme::model {
namespace {

ModelConfig nanochat(std::int64_t depth) {
  ModelConfig config = model_preset("nanochat");
  config.depth = depth;
  resolve(config, 32768);
  return config;
}

TEST(Depth, GivesThePublishedSizes) {
  EXPECT_NEAR(static_cast<double>(nanochat(12).num_parameters()), 286.3e6, 0.05e6);
  EXPECT_NEAR(static_cast<double>(nanochat(24).num_parameters()), 1384e6, 0.5e6);
  EXPECT_NEAR(multiplied_parameters(nanochat(12)), 110.1e6, 0.05e6);
  EXPECT_NEAR(multiplied_parameters(nanochat(24)), 729.8e6, 0.05e6);
  const DepthRule rule = depth_rule(nanochat(24));
  EXPECT_EQ(rule.batch_tokens, 1 << 20);
  EXPECT_EQ(static_cast<std::int64_t>(8 * rule.parameters) / rule.batch_tokens, 5568);
}

TEST(Depth, FollowsTheRulesFrom6To32) {
  constexpr std::int64_t kVocab = 32768;
  const auto matrices = [](std::int64_t depth, std::int64_t width) {
    const std::int64_t gates = (depth + 1) / 2 * (width / 128) * 12;
    return 12 * depth * width * width + gates + kVocab * width;
  };
  const double of_12 = static_cast<double>(matrices(12, 768));
  for (std::int64_t depth = 6; depth <= 32; ++depth) {
    const std::int64_t width = 128 * ((depth + 1) / 2);
    const ModelConfig config = nanochat(depth);
    const DepthRule rule = depth_rule(config);
    const std::int64_t expected = matrices(depth, width);
    EXPECT_EQ(config.num_heads, width / 128);
    EXPECT_EQ(rule.parameters, static_cast<double>(expected)) << depth;
    EXPECT_EQ(config.num_parameters(),
              expected + kVocab * width * (1 + (depth + 1) / 2) + 2 * depth + 24 + 1 + 1);
    const double larger = static_cast<double>(expected) / of_12;
    std::int64_t batch = 1 << 10;  // the nearest power of two, by its logarithm
    while (static_cast<double>(batch) * std::sqrt(2.0) < 524288 * std::pow(larger, 0.383))
      batch *= 2;
    EXPECT_EQ(rule.batch_tokens, batch) << depth;
    EXPECT_EQ(rule.steps, 12 * expected / batch);
    EXPECT_DOUBLE_EQ(rule.weight_decay,
                     0.28 * std::sqrt(static_cast<double>(batch) / 524288) / larger);
  }
}

TEST(Depth, TheSmallestGpt2HasItsParameters) {
  ModelConfig config = model_preset("gpt2-124m");
  resolve(config, 50257);
  EXPECT_EQ(config.num_parameters(), 124439808);
}

}  // namespace
}  // namespace trireme::model
