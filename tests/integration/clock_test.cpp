/// The times in metrics.jsonl agree with the wall clock, and the log names the rank that delays the
/// others.

#include <cmath>

#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Exit;
using testing::RunMetrics;

class Clock : public testing::RunProgram {
 protected:
  static double sum_of(const RunMetrics& metrics, const char* key) {
    double sum = 0;
    for (const auto& [step, line] : metrics.steps) sum += line.at(key).get<double>();
    return sum;
  }

  static double first(const RunMetrics& metrics, const char* key) {
    return metrics.steps.begin()->second.at(key).get<double>();
  }

  /// Expects that the step times add up to the wall time between the end of the first step and the
  /// end of the last. Tolerance: 2 % and 0.1 s, because a busy machine may delay rank 0 before it
  /// reads the clock.
  static void expect_by_the_clock(const RunMetrics& metrics) {
    const double by_the_day = metrics.steps.rbegin()->second.at("time").get<double>() -
                              metrics.steps.begin()->second.at("time").get<double>();
    const double by_steps = sum_of(metrics, "step_time_s") - first(metrics, "step_time_s");

    EXPECT_NEAR(by_steps, by_the_day, 0.02 * by_the_day + 0.1);
    for (const auto& [step, line] : metrics.steps) {
      EXPECT_NEAR(line["tokens_per_s"].get<double>() * line["step_time_s"].get<double>(), 12 * 32,
                  1e-6);
    }
  }

  static Json closing(const RunMetrics& metrics) { return metrics.lines.back(); }

  /// Expects that the report of the run names this rank as the only slow one.
  static void expect_reported(const std::string& run, int rank, const char* phase) {
    const Exit exit = trireme({"report", "--json", path(run).string()});
    ASSERT_EQ(exit.code, 0) << exit.err;
    const Json slow = parse_json(exit.out, "the report")["runs"][0]["slow_ranks"];

    ASSERT_EQ(slow.size(), 1U) << slow;
    EXPECT_EQ(slow[0]["rank"], rank) << slow;
    EXPECT_EQ(slow[0]["phase"], phase) << slow;
    EXPECT_GT(slow[0]["excess"].get<double>(), 1) << slow;
  }
};

TEST_F(Clock, SavesAndValidationsAreInTheStepThatFollowsAndTheLastOnesInTheClosingLine) {
  const Exit exit =
      pretrain("saves", {"--train.steps", "12", "--checkpoint.every", "1", "--train.eval_every",
                         "4", "--data.valid_path", set().string()});
  ASSERT_EQ(exit.code, 0) << exit.err;
  const RunMetrics run = metrics("saves");

  expect_by_the_clock(run);
  EXPECT_EQ(first(run, "save_s"), 0);
  for (const auto& [step, line] : run.steps) {
    EXPECT_EQ(line["save_s"].get<double>() > 0, step > 1) << line;
    EXPECT_EQ(line["validation_s"].get<double>() > 0, step == 5 || step == 9) << line;
    EXPECT_LT(line["save_s"].get<double>() + line["validation_s"].get<double>(),
              line["step_time_s"].get<double>())
        << line;
  }
  const Json end = closing(run);
  EXPECT_EQ(end["end_step"], 12);
  EXPECT_EQ(end["steps"], 12);
  EXPECT_EQ(end["tokens"], 12 * 12 * 32);
  EXPECT_EQ(end["done"], true);
  EXPECT_GT(end["time_s"].get<double>(), sum_of(run, "step_time_s")) << "the last save";
  EXPECT_LT(end["time_s"].get<double>(), exit.seconds);
  EXPECT_NE(exit.err.find("done at step 12/12: 12 steps, 4.6k tokens in "), std::string::npos)
      << exit.err;
  EXPECT_NE(exit.err.find("newest checkpoint step-000000012"), std::string::npos) << exit.err;
}

/// The number of ranks, and the rank that is delayed by a second at a point of each step.
struct Held {
  int ranks;
  int held;
  const char* point;
  const char* phase;
};

class HeldRank : public Clock, public ::testing::WithParamInterface<Held> {};

TEST_P(HeldRank, IsNamedInEveryLineAndItsTimeCounts) {
  const auto [ranks, held, point, phase] = GetParam();
  const std::string run = "held_" + std::to_string(ranks) + phase;
  // A point in the update is passed once per micro-batch: one of them takes the whole batch.
  const bool in_update = std::string(point) != "train.step";
  const Exit exit = pretrain(
      run,
      {"--train.steps", "3", "--train.micro_batch", std::to_string(in_update ? 12 / ranks : 1)},
      {.ranks = ranks, .fault = std::string(point) + ":" + std::to_string(held) + ":*:delay"});
  ASSERT_EQ(exit.code, 0) << exit.err;
  const RunMetrics lines = metrics(run);

  expect_by_the_clock(lines);
  for (const auto& [step, line] : lines.steps) {
    EXPECT_EQ(line["slowest_rank"], held) << line;
    EXPECT_EQ(line["slowest_phase"], phase) << line;
    EXPECT_EQ(line["attempt"], 0) << line;
    EXPECT_FALSE(line["slowest_host"].get<std::string>().empty()) << line;
    EXPECT_NEAR(line["slowest_excess_s"].get<double>(), 1.0, 0.4) << line;
    EXPECT_GE(line["step_time_s"].get<double>(), 1.0) << line;
    // All other ranks wait for most of the second. They compute during the rest.
    EXPECT_GT(line["peer_wait_s"].get<double>(), 0.7 * (ranks - 1) / ranks) << line;
    EXPECT_LE(line["peer_wait_s"].get<double>(), line["step_time_s"].get<double>()) << line;
  }
  // With two ranks, three lines may name the same rank by chance.
  if (ranks > 2) expect_reported(run, held, phase);
}

INSTANTIATE_TEST_SUITE_P(Ranks, HeldRank,
                         ::testing::Values(Held{2, 1, "train.step", "other"},
                                           Held{4, 2, "train.step", "other"},
                                           Held{4, 2, "train.backward", "compute"}));

TEST_F(Clock, ARankWithSlowDataIsNamedWithThePhaseData) {
  // Rank 2 needs 3 s for the three batches of a step. Its loader makes some of them in advance.
  const Exit exit = pretrain("data_held", {"--train.steps", "3", "--train.micro_batch", "1"},
                             {.ranks = 4, .fault = "data.batch:2:*:delay"});
  ASSERT_EQ(exit.code, 0) << exit.err;

  const Json line = metrics("data_held").steps.at(3);

  EXPECT_EQ(line["slowest_rank"], 2) << line;
  EXPECT_EQ(line["slowest_phase"], "data") << line;
  EXPECT_GT(line["slowest_excess_s"].get<double>(), 0.5) << line;
  EXPECT_GT(line["data_wait_s"].get<double>(), 0.125) << "the mean of four ranks: " << line;
  expect_reported("data_held", 2, "data");
}

TEST_F(Clock, AMeanOverAWindowAddsUpAsWell) {
  const Exit exit = pretrain("window", {"--train.steps", "7", "--train.metrics_every", "3"},
                             {.ranks = 2, .fault = "train.step:0:5:delay"});
  ASSERT_EQ(exit.code, 0) << exit.err;
  const RunMetrics run = metrics("window");

  ASSERT_EQ(run.steps.size(), 3U);  // steps 3, 6 and 7
  const auto time = [&](int step) { return run.steps.at(step)["step_time_s"].get<double>(); };
  EXPECT_GE(3 * time(6), 1.0);
  EXPECT_EQ(run.steps.at(6)["slowest_rank"], 0);
  const double sum = 3 * time(3) + 3 * time(6) + time(7);
  EXPECT_LE(sum, closing(run)["time_s"].get<double>());
  EXPECT_NEAR(run.steps.at(7)["time"].get<double>() - run.steps.at(3)["time"].get<double>(),
              3 * time(6) + time(7),
              0.15);  // a busy machine may delay rank 0 before it reads the clock
}

}  // namespace
}  // namespace trireme
