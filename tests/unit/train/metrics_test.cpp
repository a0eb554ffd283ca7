#include "train/report/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/thread/thread_world.hpp"
#include "core/files/json.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

class MetricsTest : public Scratch {
 protected:
  std::vector<Json> lines() const {
    std::vector<Json> result;
    std::ifstream file(at("metrics.jsonl"));
    for (std::string line; std::getline(file, line);)
      result.push_back(parse_json(line, "metrics.jsonl"));
    return result;
  }
};

TEST_F(MetricsTest, OneLineHoldsSumsOfLossTheLastRanksEndMeansOfPartsAndTheLargestMemory) {
  run_ranks(3, [&](Communicator& world) {
    Metrics metrics(world, at("metrics.jsonl"), 10.0, 1000.0);
    const double r = world.rank();
    const StepMeasures measures{.loss_sum = 10 + r,
                                .num_targets = 4,
                                .ended_s = 4 + r,
                                .data_wait_s = 0.3,
                                .save_s = r,
                                .peer_wait_s = r == 1 ? 0.1 : 2,
                                .comm_s = 0.6,
                                .first_bucket_s = 0.5,
                                .last_grad_s = 2.5,
                                .mem_peak_bytes = 100 * r};
    EXPECT_FALSE(metrics.report({8, 800, 120, 2, 0.5, 0.1, 1.0, false}, measures));
    const auto line = metrics.flush();
    ASSERT_TRUE(line);
    EXPECT_EQ(line->loss, (10.0 + 11 + 12) / 12);
    EXPECT_EQ(line->tokens_per_s, 120 / 3.0);
    EXPECT_EQ(line->slowest_rank, 1);  // it waited least
    EXPECT_FALSE(metrics.flush());
  });

  ASSERT_EQ(lines().size(), 1U);
  const Json line = lines().front();
  EXPECT_EQ(line["step"], 8);
  EXPECT_EQ(line["loss"], 33.0 / 12);
  EXPECT_EQ(line["num_targets"], 12);
  EXPECT_EQ(line["step_time_s"], 3.0);  // rank 2 ended two steps after 6 s
  EXPECT_EQ(line["save_s"], 0.5);
  EXPECT_NEAR(line["time"].get<double>(), static_cast<double>(std::time(nullptr)), 60);
  EXPECT_EQ(line["first_bucket_s"], 0.25);
  EXPECT_EQ(line["last_grad_s"], 1.25);
  EXPECT_EQ(line["mem_peak_bytes"], 200);
  EXPECT_EQ(line["mfu"], 40.0 * 10 / 1000);
}

TEST_F(MetricsTest, StepTimesAddUpToTheEndOfTheLastRank) {
  run_ranks(2, [&](Communicator& world) {
    Metrics metrics(world, at("metrics.jsonl"), 1, 1);
    StepMeasures measures{};
    double sum = 0;
    for (std::int64_t step = 1; step <= 4; ++step) {
      const bool late = world.rank() == step % 2;  // each time another rank ends last
      measures.ended_s = static_cast<double>(step) + (late ? 0.5 : 0);
      metrics.report({step, step, 1, 1, 0, 1e-3, 1, false}, measures);
      sum += metrics.flush()->step_time_s;
    }
    EXPECT_DOUBLE_EQ(sum, 4.5);
  });
}

TEST_F(MetricsTest, TheClosingLineSaysWhatWasDone) {
  run_ranks(1, [&](Communicator& world) {
    Metrics metrics(world, at("metrics.jsonl"), 1, 1);
    metrics.write_closing({.done = false, .step = 9, .steps = 4, .tokens = 400, .time_s = 2});
  });

  const Json line = lines().front();
  EXPECT_EQ(line["end_step"], 9);
  EXPECT_EQ(line["steps"], 4);
  EXPECT_EQ(line["tokens_per_s"], 200.0);
  EXPECT_EQ(line["done"], false);
}

TEST_F(MetricsTest, ALineComesOneReportLaterAndNumbersRoundTrip) {
  run_ranks(1, [&](Communicator& world) {
    Metrics metrics(world, at("metrics.jsonl"), 1, 1);
    StepMeasures measures{};
    measures.loss_sum = 0.1;
    measures.num_targets = 3;
    measures.ended_s = 1;
    EXPECT_FALSE(metrics.report({1, 1, 1, 1, std::nan(""), 1e-3, 1, true}, measures));
    EXPECT_TRUE(lines().empty());
    const auto first = metrics.report({2, 2, 1, 1, 1.0 / 3, 1e-3, 1, false}, measures);
    ASSERT_TRUE(first);
    EXPECT_EQ(first->facts.step, 1);
    EXPECT_EQ(lines().size(), 1U);
    metrics.flush();
  });

  ASSERT_EQ(lines().size(), 2U);
  EXPECT_TRUE(lines()[0]["grad_norm"].is_null());  // JSON has no NaN
  EXPECT_EQ(lines()[0]["skipped"], true);
  EXPECT_EQ(lines()[1]["grad_norm"].get<double>(), 1.0 / 3);
  EXPECT_EQ(lines()[1]["loss"].get<double>(), 0.1 / 3);
}

TEST_F(MetricsTest, AnUpdateWithoutTargetsHasNoLoss) {
  run_ranks(1, [&](Communicator& world) {
    Metrics metrics(world, at("metrics.jsonl"), 1, 1);
    StepMeasures measures{};
    measures.ended_s = 1;
    metrics.report({1, 1, 1, 1, 0, 1e-3, 1, false}, measures);
    metrics.flush();
  });

  EXPECT_TRUE(lines().front()["loss"].is_null());
}

TEST_F(MetricsTest, AHalfLineOfALostProcessIsCutOff) {
  std::ofstream(at("metrics.jsonl")) << "{\"step\":1}\n{\"step\":2,\"lo";
  run_ranks(2, [&](Communicator& world) {
    Metrics metrics(world, at("metrics.jsonl"), 1, 1);
    world.barrier();
    metrics.write_resumed(1);
  });

  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines()[0]["step"], 1);
  EXPECT_EQ(lines()[1]["resumed_from"], 1);
}

TEST_F(MetricsTest, AFileThatCannotGrowIsAnError) {
  run_ranks(1, [&](Communicator& world) {
    Metrics metrics(world, at("absent") / "metrics.jsonl", 1, 1);
    EXPECT_EQ(error_of([&] { metrics.write_resumed(1); }).kind(), ErrorKind::usage);
  });
}

}  // namespace
}  // namespace trireme
