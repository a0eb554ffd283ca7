/// Runs with train.late_results read the loss and the norm of a step while the next step runs. All
/// numbers, hashes and decisions are those of results that are read at once.

#include <csignal>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::Start;

class LateResults : public testing::RunProgram {
 protected:
  static Exit train(const std::string& run, const char* late, const Arguments& more,
                    const Start& how) {
    Arguments all{"--train.steps",      "14", "--train.late_results",   late,
                  "--checkpoint.every", "6",  "--checkpoint.keep_last", "0"};
    all.insert(all.end(), more.begin(), more.end());
    return pretrain(run, all, how);
  }

  /// Expects that two runs have equal step hashes, and equal lines of metrics except for times.
  static void expect_equal(const std::string& one, const std::string& other) {
    EXPECT_EQ(read_file(path(one) / "chain.txt"), read_file(path(other) / "chain.txt"));
    auto first = metrics(one).steps;
    auto second = metrics(other).steps;
    ASSERT_EQ(first.size(), second.size());
    for (auto& [step, line] : first) {
      for (const char* key : {"loss", "grad_norm", "lr", "tokens", "num_targets", "skipped",
                              "loss_scale", "loss_z", "grad_norm_z"})
        EXPECT_EQ(line[key], second[step][key]) << key << " of step " << step;
    }
    EXPECT_EQ(validation_losses(one), validation_losses(other));
    EXPECT_EQ(saved_steps(one), saved_steps(other));
  }

  static std::vector<Json> validation_losses(const std::string& run) {
    std::vector<Json> losses;
    for (const Json& line : metrics(run).lines)
      if (line.contains("valid_loss")) losses.push_back(line["valid_loss"]);
    return losses;
  }
};

TEST_F(LateResults, ARunHasTheSameNumbers) {
  const Arguments hard{
      "--train.hash_weights_every", "2", "--train.ema_decay", "0.9",  "--data.split",    "30,6,0",
      "--train.eval_every",         "5", "--train.eval_ema",  "true", "--parallel.zero", "1"};
  const Start bad_step{.ranks = 2, .fault = "train.bad_loss:1:3:trigger"};
  const Exit at_once = train("at_once", "false", hard, bad_step);
  const Exit late = train("late", "true", hard, bad_step);

  ASSERT_EQ(at_once.code, 0) << at_once.err;
  ASSERT_EQ(late.code, 0) << late.err;
  expect_equal("at_once", "late");
  EXPECT_EQ(validation_losses("late").size(), 2U);
  EXPECT_TRUE(metrics("late").steps[3]["skipped"].get<bool>());
  EXPECT_EQ(read_file(path("late") / "skipped" / "rank-00001.jsonl"),
            read_file(path("at_once") / "skipped" / "rank-00001.jsonl"));
}

TEST_F(LateResults, ABadUpdateEndsTheRunBeforeTheWeightsOrACheckpointChange) {
  // Steps 8 and 9: the second fault does not count the call that the first one changes.
  const Exit exit =
      train("ends", "true", {"--train.max_skipped_steps", "1"},
            {.ranks = 2, .fault = "train.bad_loss:0:8:trigger,train.bad_loss:0:8:trigger"});

  EXPECT_EQ(exit.code, 6) << exit.err;
  EXPECT_NE(exit.err.find("step 9: the gradient is not finite, 2 steps in a row"),
            std::string::npos)
      << exit.err;
  EXPECT_EQ(saved_steps("ends"), (std::vector<std::int64_t>{6}));
  const auto steps = metrics("ends").steps;
  EXPECT_EQ(steps.rbegin()->first, 8) << "the last step whose results were accepted";

  // A second start resumes from step 6. A run without bad updates has the same hashes.
  ASSERT_EQ(train("ends", "true", {"--train.max_skipped_steps", "1"}, {.ranks = 2}).code, 0);
  ASSERT_EQ(train("plain", "false", {}, {.ranks = 2}).code, 0);
  expect_equal("ends", "plain");
}

TEST_F(LateResults, AStoppedRunResumesBitForBit) {
  Arguments keys{"--train.steps", "14", "--train.late_results", "true"};
  const auto process = start("stopped", keys, {.fault = "train.stepped:0:9:stop"});
  ASSERT_TRUE(testing::wait_for([&] { return testing::process_state(process->pid()) == 'T'; }, 60));
  process->signal(SIGTERM);
  process->signal(SIGCONT);
  const Exit exit = process->wait(kLimit_s);
  EXPECT_EQ(exit.code, kExitStopped) << exit.err;
  EXPECT_GE(saved_steps("stopped").front(), 9);
  EXPECT_LT(saved_steps("stopped").front(), 14);

  ASSERT_EQ(pretrain("stopped", keys, {}).code, 0);
  keys.back() = "false";
  ASSERT_EQ(pretrain("never_stopped", keys, {}).code, 0);
  EXPECT_EQ(read_file(path("stopped") / "chain.txt"),
            read_file(path("never_stopped") / "chain.txt"));
  EXPECT_EQ(hash("stopped"), hash("never_stopped"));
}

TEST_F(LateResults, APrecisionWhoseScaleNeedsTheLastStepReadsItAtOnce) {
  const Exit exit =
      train("fp16", "true", {"--train.precision", "fp16"}, {.fault = "train.overflow:0:2:trigger"});

  EXPECT_EQ(exit.code, 0) << exit.err;
  EXPECT_NE(exit.err.find("the fp16 loss scale of a step depends on the step before"),
            std::string::npos)
      << exit.err;
  EXPECT_TRUE(metrics("fp16").steps[2]["skipped"].get<bool>());
}

}  // namespace
}  // namespace trireme
