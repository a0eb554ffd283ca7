#include "optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/error.hpp"

namespace trireme::optim {
namespace {

OptimConfig with(const std::string& schedule, std::int64_t warmup) {
  OptimConfig config;
  config.lr = 1.0;
  config.min_lr = 0.1;
  config.schedule = schedule;
  config.warmup_steps = warmup;
  return config;
}

TEST(Schedule, WarmsUpLinearlyThenFollowsTheCosine) {
  const OptimConfig config = with("cosine", 10);

  EXPECT_DOUBLE_EQ(learning_rate(config, 1, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 110), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 60, 110), 0.55);
  EXPECT_NEAR(learning_rate(config, 110, 110), 0.1, 1e-15);
  EXPECT_NEAR(learning_rate(config, 500, 110), 0.1, 1e-15);
}

TEST(Schedule, LinearAndConstant) {
  EXPECT_DOUBLE_EQ(learning_rate(with("linear", 0), 50, 100), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(with("linear", 0), 100, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(with("constant", 4), 2, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(with("constant", 4), 90, 100), 1.0);
}

TEST(Schedule, EndsAtATenthOfThePeakWhereNoEndIsGiven) {
  for (const auto& [lr, end] : std::vector<std::pair<double, double>>{
           {3e-4, 3e-5}, {1e-5, 1e-6}, {1.0, 0.1}, {6.25e-4, 6.25e-5}}) {
    OptimConfig config;
    config.lr = lr;
    EXPECT_EQ(final_lr(config), end);
    EXPECT_EQ(learning_rate(config, 100, 100), end);
  }
}

TEST(Schedule, MiniMindStartsAtElevenTenthsInV2AndBelowOneInV3) {
  const double pi = std::numbers::pi;

  EXPECT_DOUBLE_EQ(learning_rate(with("minimind-v2", 50), 1, 100), 1.1);
  EXPECT_NEAR(learning_rate(with("minimind-v2", 0), 100, 100),
              0.1 + 0.5 * (1 + std::cos(pi * 0.99)), 1e-12);
  EXPECT_NEAR(learning_rate(with("minimind-v3", 50), 1, 100),
              0.1 + 0.45 * (1 + std::cos(pi * 0.01)), 1e-12);
  EXPECT_NEAR(learning_rate(with("minimind-v3", 0), 100, 100), 0.1, 1e-12);
}

TEST(Schedule, RefusesUnknownNames) {
  EXPECT_THROW(learning_rate(with("cosin", 0), 1, 10), Error);
}

TEST(Schedule, AWarmupLongerThanTheRunIsNamed) {
  const std::string note = warmup_note(with("cosine", 100), 50);

  EXPECT_NE(note.find("optim.warmup_steps = 100, but train.steps = 50"), std::string::npos) << note;
  EXPECT_TRUE(note.ends_with("reaches 0.5 of 1")) << note;
  EXPECT_EQ(warmup_note(with("cosine", 50), 50), "");
  EXPECT_EQ(warmup_note(with("minimind-v2", 100), 50), "") << "it has none";
}

}  // namespace
}  // namespace trireme::optim
