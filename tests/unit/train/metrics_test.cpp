#include "train/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/thread/thread_world.hpp"
#include "core/json.hpp"
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

TEST_F(MetricsTest, OneLineHoldsSumsOfLossMeansOfTimesAndTheLargestMemory) {
  run_ranks(3, [&](Communicator& world) {
    Metrics metrics(world, at("metrics.jsonl"), 10.0, 1000.0);
    const double r = world.rank();
    EXPECT_FALSE(metrics.report({8, 800, 120, 2, 0.5, 0.1, 1.0, false},
                                {10 + r, 4, 4 + 2 * r, 0.3, 0.6, 0.1 * r, 0.5, 2.5, 100 * r}));
    const auto line = metrics.flush();
    ASSERT_TRUE(line);
    EXPECT_EQ(line->loss, (10.0 + 11 + 12) / 12);
    EXPECT_EQ(line->tokens_per_s, 120 / 3.0);
    EXPECT_EQ(line->slowest_rank, 2);  // 8 - 0.2 s of its own
    EXPECT_FALSE(metrics.flush());
  });

  ASSERT_EQ(lines().size(), 1U);
  const Json line = lines().front();
  EXPECT_EQ(line["step"], 8);
  EXPECT_EQ(line["loss"], 33.0 / 12);
  EXPECT_EQ(line["num_targets"], 12);
  EXPECT_EQ(line["step_time_s"], 3.0);  // of one of the two steps
  EXPECT_EQ(line["first_bucket_s"], 0.25);
  EXPECT_EQ(line["last_grad_s"], 1.25);
  EXPECT_EQ(line["mem_peak_bytes"], 200);
  EXPECT_EQ(line["mfu"], 40.0 * 10 / 1000);
}

TEST_F(MetricsTest, ALineComesOneReportLaterAndNumbersRoundTrip) {
  run_ranks(1, [&](Communicator& world) {
    Metrics metrics(world, at("metrics.jsonl"), 1, 1);
    StepMeasures measures{};
    measures.loss_sum = 0.1;
    measures.num_targets = 3;
    measures.step_time_s = 1;
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
    measures.step_time_s = 1;
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
