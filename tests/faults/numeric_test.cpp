/// Tests losses and gradients that are not finite: all ranks skip the update, its samples are
/// recorded, and too many in a row end the run.

#include <fstream>

#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

const Arguments kPlain{"--train.steps",          "8", "--checkpoint.every", "1",
                       "--checkpoint.keep_last", "0", "--train.precision",  "bf16"};

class Numeric : public testing::RunProgram {
 protected:
  static std::vector<Json> skipped(const std::string& run, int rank) {
    std::vector<Json> lines;
    std::ifstream file(path(run) / "skipped" / ("rank-0000" + std::to_string(rank) + ".jsonl"));
    for (std::string line; std::getline(file, line);) lines.push_back(parse_json(line, "skipped"));
    return lines;
  }

  static std::string hash_of_step(const std::string& run, const char* step) {
    return trireme({"checkpoint", "hash", (path(run) / "checkpoints" / step).string()}).out;
  }
};

TEST_F(Numeric, ABadLossOfOneRankSkipsTheUpdateOnAllAndNamesTheSamples) {
  const Exit exit =
      pretrain("bad_loss", kPlain, {.ranks = 2, .fault = "train.bad_loss:1:3:trigger"});

  ASSERT_EQ(exit.code, 0) << exit.err;
  auto steps = metrics("bad_loss").steps;
  ASSERT_EQ(steps.size(), 8U);
  for (auto& [step, line] : steps) EXPECT_EQ(line["skipped"].get<bool>(), step == 3) << line;
  EXPECT_EQ(hash_of_step("bad_loss", "step-000000003"), hash_of_step("bad_loss", "step-000000002"));
  EXPECT_NE(hash_of_step("bad_loss", "step-000000004"), hash_of_step("bad_loss", "step-000000003"));
  std::vector<std::int64_t> samples;
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<Json> lines = skipped("bad_loss", rank);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0]["step"], 3);
    EXPECT_EQ(lines[0]["loss_sum"].is_null(), rank == 1) << "rank 1 is the one";
    for (const auto& batch : lines[0]["micro_batches"]) {
      for (const auto& sample : batch) samples.push_back(sample);
    }
  }
  std::sort(samples.begin(), samples.end());
  std::vector<std::int64_t> third_update(12);
  for (std::size_t i = 0; i < 12; ++i) third_update[i] = 24 + static_cast<std::int64_t>(i);
  EXPECT_EQ(samples, third_update);
  EXPECT_NE(exit.err.find("step 3: the loss or the gradient is not finite"), std::string::npos);
}

TEST_F(Numeric, TooManyInARowEndTheRunAndAResumeCountsOn) {
  Arguments two = kPlain;
  two.insert(two.end(), {"--train.max_skipped_steps", "2"});
  const Exit exit = pretrain(
      "row", two, {.ranks = 2, .fault = "train.overflow:0:*:trigger", .keep_rank_codes = true});

  EXPECT_EQ(rank_codes(2), std::set<int>{6}) << exit.err;
  EXPECT_NE(exit.err.find("step 3: the gradient is not finite, 3 steps in a row"),
            std::string::npos)
      << exit.err;
  EXPECT_EQ(saved_steps("row"), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(skipped("row", 0).size(), 3U);
  EXPECT_EQ(status("row")["exit_code"], 6);

  // The checkpoint of step 2 records two skipped updates in a row: the third one ends the run
  // again.
  const Exit again = pretrain("row", two, {.ranks = 2, .fault = "train.overflow:0:1:trigger"});
  EXPECT_EQ(again.code, 6) << again.err;
  EXPECT_EQ(metrics("row").resumed_from, std::vector<std::int64_t>{2});
  ASSERT_EQ(pretrain("row", two, {.ranks = 2}).code, 0);
}

TEST_F(Numeric, ARunWithoutOneUpdateIsNotDone) {
  const Exit exit =
      pretrain("none", {"--train.steps", "2"}, {.ranks = 2, .fault = "train.overflow:0:*:trigger"});

  EXPECT_EQ(exit.code, 6) << exit.err;
  EXPECT_NE(exit.err.find("no update was done"), std::string::npos) << exit.err;
  EXPECT_TRUE(saved_steps("none").empty());
  EXPECT_EQ(status("none")["state"], "failed");
}

TEST_F(Numeric, TheSearchOfTheFp16ScalerDoesNotCount) {
  const Arguments fp16{
      "--train.steps", "6", "--train.precision", "fp16", "--train.max_skipped_steps", "0"};
  const Exit exit = pretrain("scaler", fp16, {.fault = "train.overflow:0:2:trigger"});

  EXPECT_EQ(exit.code, 0) << exit.err;
  EXPECT_TRUE(metrics("scaler").steps[2]["skipped"].get<bool>());
  EXPECT_FALSE(std::filesystem::exists(path("scaler") / "skipped"));
}

}  // namespace
}  // namespace trireme
