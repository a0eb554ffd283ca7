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

TEST(Schedule, WsdIsConstantUntilItsDecay) {
  OptimConfig config = with("wsd", 10);
  config.decay_steps = 20;

  EXPECT_DOUBLE_EQ(learning_rate(config, 5, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 11, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 80, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 85, 100), 0.775);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100, 100), 0.1);
  config.decay_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(config, 100, 100), 1.0);
  config.decay_steps = kTenthOfSteps;
  EXPECT_DOUBLE_EQ(learning_rate(config, 90, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 95, 100), 0.55);
}

TEST(Schedule, EveryDecayShapeGoesFromThePeakToTheFinalRate) {
  const std::vector<std::pair<std::string, double>> quarter{
      {"linear", 0.775},
      {"cosine", 0.1 + 0.9 * (1 + std::cos(std::numbers::pi / 4)) / 2},
      {"sqrt", 0.55},
      {"exponential", std::pow(0.1, 0.25)}};
  for (const auto& [shape, rate] : quarter) {
    OptimConfig config = with("wsd", 0);
    config.decay_steps = 20;
    config.decay_shape = shape;
    EXPECT_DOUBLE_EQ(learning_rate(config, 80, 100), 1.0) << shape;
    EXPECT_NEAR(learning_rate(config, 85, 100), rate, 1e-15) << shape;
    EXPECT_NEAR(learning_rate(config, 100, 100), 0.1, 1e-15) << shape;
  }
}

TEST(Schedule, PiecewiseIsLinearBetweenItsPoints) {
  OptimConfig config = with("piecewise", 0);
  config.points = "0:0, 10:1, 50:1, 51:0.5, 100:0.01";

  EXPECT_DOUBLE_EQ(learning_rate(config, 1, 200), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10, 200), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 33, 200), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 51, 200), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100, 200), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate(config, 180, 200), 0.01);
  config.points = "20:0.5,30:1";
  EXPECT_DOUBLE_EQ(learning_rate(config, 3, 200), 0.5) << "constant before the first point";
  EXPECT_EQ(scaled_points(config, 0.5), "20:0.25,30:0.5");
}

std::string problem_of(const OptimConfig& config) {
  Problems problems;
  check_schedule(config, problems);
  return problems.empty() ? "" : problems.lines().front();
}

TEST(Schedule, NamesTheInvalidEntryOfPoints) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"", "optim.points = '', must be a list such as"},
      {"10", "has the entry '10', which is not STEP:VALUE"},
      {"0:1,,5:1", "has the entry ''"},
      {"-1:1", "has the entry '-1:1'"},
      {"0:1,5:x", "has the entry '5:x', and its value is not a number"},
      {"0:1,5:1,5:0", "has step 5 after step 5, but steps must increase"},
      {"0:1,5:-1", "has the rate -1 at step 5. Rates must be in [0, 1e+06]"},
      {"0:0.5,5:0.25", "optim.lr = 1, must be 0.5, the largest rate of optim.points"}};
  for (const auto& [points, words] : wrong) {
    OptimConfig config = with("piecewise", 0);
    config.points = points;
    EXPECT_NE(problem_of(config).find(words), std::string::npos) << problem_of(config);
  }
  OptimConfig right = with("piecewise", 0);
  right.points = "0:1";
  EXPECT_EQ(problem_of(right), "");
}

TEST(Schedule, RefusesKeysOfAnotherSchedule) {
  OptimConfig decay = with("cosine", 0);
  decay.decay_steps = 10;
  OptimConfig shape = with("constant", 0);
  shape.decay_shape = "sqrt";
  OptimConfig points = with("wsd", 0);
  points.points = "0:1";
  OptimConfig zero = with("wsd", 0);
  zero.decay_shape = "exponential";
  zero.min_lr = 0;

  EXPECT_EQ(problem_of(decay), "optim.decay_steps = 10, needs optim.schedule = wsd");
  EXPECT_EQ(problem_of(shape), "optim.decay_shape = sqrt, needs optim.schedule = wsd");
  EXPECT_EQ(problem_of(points), "optim.points = 0:1, needs optim.schedule = piecewise");
  EXPECT_NE(problem_of(zero).find("optim.min_lr = 0, must be more than 0"), std::string::npos);
}

TEST(Schedule, ADecayThatBeganBeforeTheStartIsNamed) {
  OptimConfig config = with("wsd", 0);
  config.decay_steps = 50;

  EXPECT_EQ(decay_note(config, 100, 50), "");
  EXPECT_NE(decay_note(config, 100, 60)
                .find("begins at step 50, before the first step of this "
                      "start (61), which has the learning rate 0.802"),
            std::string::npos)
      << decay_note(config, 100, 60);
  EXPECT_NE(decay_note(config, 40, 0).find("together more than train.steps = 40"),
            std::string::npos);
}

TEST(Schedule, ATenthOfFewStepsIsNoDecayAndIsNamed) {
  OptimConfig config = with("wsd", 0);
  config.decay_steps = kTenthOfSteps;

  EXPECT_EQ(decay_note(config, 9, 0),
            "optim.schedule = wsd has no decay: optim.decay_steps = -1, and train.steps = 9, of "
            "which a tenth is less than one step. Set optim.decay_steps for a decay, or to 0");
  EXPECT_EQ(decay_note(config, 10, 0), "");
  config.warmup_steps = 95;
  EXPECT_NE(decay_note(config, 100, 0).find("a decay of 10 steps (optim.decay_steps) are together"),
            std::string::npos);
  config.warmup_steps = 0;
  config.decay_steps = 0;
  EXPECT_EQ(decay_note(config, 9, 0), "") << "no decay was asked for";
}

TEST(Schedule, NotesShowRoundedRates) {
  OptimConfig config = with("wsd", 0);
  config.lr = 1e-4 / 3;
  config.min_lr = 0;
  config.decay_steps = 7;
  EXPECT_TRUE(decay_note(config, 10, 5).ends_with("learning rate 1.905e-05"))
      << decay_note(config, 10, 5);
  config = with("cosine", 7);
  EXPECT_TRUE(warmup_note(config, 3).ends_with("reaches 0.4286 of 1")) << warmup_note(config, 3);
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
