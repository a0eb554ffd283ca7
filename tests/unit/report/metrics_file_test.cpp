#include "report/metrics_file.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "unit/report/run_files.hpp"

namespace trireme::report {
namespace {

class MetricsFileTest : public RunFiles {};

TEST_F(MetricsFileTest, SkipsAndCountsDamagedLines) {
  write(at("metrics.jsonl"),
        {R"({"step":1,"loss":2})", R"({"step":2,"lo)", "", "[1]", "12", R"({"step":3,"loss":null})",
         std::string(3 << 20, 'x'), R"({"step":4,"loss":1})"});

  const MetricsFile file = read_metrics_file(at("metrics.jsonl"));

  ASSERT_EQ(file.steps.size(), 3U);
  EXPECT_EQ(file.steps[2].step, 4);
  EXPECT_TRUE(std::isnan(file.steps[1].loss));
  EXPECT_EQ(file.damaged_lines, 5);
  EXPECT_EQ(file.first_damaged, 2);
}

TEST_F(MetricsFileTest, IgnoresALineThatIsBeingWritten) {
  std::ofstream(at("metrics.jsonl")) << "{\"step\":1}\n{\"step\":2,\"lo";

  const MetricsFile file = read_metrics_file(at("metrics.jsonl"));

  EXPECT_EQ(file.steps.size(), 1U);
  EXPECT_EQ(file.damaged_lines, 0);
  EXPECT_TRUE(read_metrics_file(at("absent.jsonl")).steps.empty());
}

TEST_F(MetricsFileTest, FindsTheAttemptsInFilesWithoutTheirNumber) {
  write(at("metrics.jsonl"),
        {R"({"step":1})", R"({"step":2})", R"({"step":3})", R"({"resumed_from":2})",
         R"({"step":3})", R"({"step":4})", R"({"step":1})"});

  const MetricsFile file = read_metrics_file(at("metrics.jsonl"));

  std::vector<std::int64_t> attempts;
  for (const StepLine& line : file.steps) attempts.push_back(line.attempt);
  EXPECT_EQ(attempts, (std::vector<std::int64_t>{0, 0, 0, 1, 1, 2}));
  EXPECT_EQ(file.steps[3].num_steps, 1);
  EXPECT_EQ(file.steps[5].num_steps, 0);
}

TEST_F(MetricsFileTest, ReadsTheNormsOfLayersOfTheLinesThatHaveThem) {
  write(at("metrics.jsonl"),
        {R"({"step":1,"grad_norm":1})",
         R"({"step":2,"grad_norm/head":0.5,"update_norm/head":null,"loss":3})", R"({"step":3})",
         R"({"step":4,"grad_norm/head":0.25,"update_norm/head":0.125})"});

  const MetricsFile file = read_metrics_file(at("metrics.jsonl"));

  EXPECT_EQ(file.layer_names, (std::vector<std::string>{"grad_norm/head", "update_norm/head"}));
  ASSERT_EQ(file.layer_lines.size(), 2U);
  EXPECT_EQ(file.layer_lines[0].line, 1U);
  EXPECT_EQ(file.layer_lines[0].values[0], 0.5);
  EXPECT_TRUE(std::isnan(file.layer_lines[0].values[1]));
  EXPECT_EQ(file.steps[file.layer_lines[1].line].step, 4);
  EXPECT_EQ(file.layer_lines[1].values, (std::vector<double>{0.25, 0.125}));
}

TEST_F(MetricsFileTest, ReadsHostsAndPhases) {
  write(at("metrics.jsonl"),
        {R"({"step":1,"slowest_rank":3,"slowest_host":"n1","slowest_phase":"data"})",
         R"({"step":2,"slowest_rank":3,"slowest_host":"n1","slowest_phase":"compute"})"});

  const MetricsFile file = read_metrics_file(at("metrics.jsonl"));

  EXPECT_EQ(file.words, (std::vector<std::string>{"n1", "data", "compute"}));
  EXPECT_EQ(file.steps[1].slowest_host, 0);
  EXPECT_EQ(file.steps[1].slowest_phase, 2);
}

}  // namespace
}  // namespace trireme::report
