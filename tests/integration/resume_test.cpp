/// Runs that are stopped by signals, or continued elsewhere, end with the same result as an
/// uninterrupted run.

#include <algorithm>
#include <csignal>

#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::Process;
using testing::RunMetrics;
using testing::Start;

constexpr std::int64_t kSteps = 10;
const Arguments kPlain{"--train.steps", "10", "--checkpoint.every", "4"};
// These keys could change bits across a stop: rounded weights, random masks, a writer thread, many
// buckets.
const Arguments kHard{"--train.steps",        "10",   "--checkpoint.every",   "4",
                      "--train.precision",    "bf16", "--model.dropout",      "0.1",
                      "--checkpoint.async",   "true", "--parallel.bucket_mb", "0.05",
                      "--parallel.recompute", "full"};

class Resume : public testing::RunProgram {
 protected:
  enum class Target { mpirun, rank };

  /// Freezes rank 1 before step `nth` of this start, sends the signal, and continues the rank.
  static Exit stop(const std::string& run, const Arguments& arguments, int nth, int number,
                   Target target) {
    const auto process = start(
        run, arguments, {.ranks = 2, .fault = "train.step:1:" + std::to_string(nth) + ":stop"});
    pid_t frozen = -1;
    EXPECT_TRUE(testing::wait_for(
        [&] {
          if (frozen < 0) frozen = testing::rank_pid(process->pid(), 1);
          return frozen > 0 && testing::process_state(frozen) == 'T';
        },
        60))
        << "rank 1 did not come to step " << nth;
    if (target == Target::mpirun) {
      process->signal(number);
      for (int i = 0; i < 15; ++i) testing::sleep_briefly();  // mpirun forwards the signal
    } else {
      testing::signal_process(testing::rank_pid(process->pid(), 0), number);
    }
    testing::signal_process(frozen, SIGCONT);
    const Exit exit = process->wait(kLimit_s);
    EXPECT_FALSE(exit.timed_out) << exit.err;
    return exit;
  }

  struct Layout {
    Arguments keys;
    int ranks;
  };

  /// Expects that a run on one rank ("alone_TAG") and a run on `layout` ("whole_TAG") have the same
  /// losses. A run from the middle of the latter on the same layout continues bit for bit; a run on
  /// each of `others` has the same losses. All use fp64 and validations.
  static void expect_resumes_on(const std::string& tag, const Arguments& model,
                                const Layout& layout, const std::vector<Layout>& others) {
    const std::string whole = "whole_" + tag;
    const auto train = [&](const std::string& run, const Layout& on, bool from_the_middle) {
      Arguments all{"--train.steps",          "8",      "--checkpoint.every", "4",
                    "--checkpoint.keep_last", "0",      "--train.precision",  "fp64",
                    "--data.split",           "30,6,0", "--train.eval_every", "4"};
      all.insert(all.end(), model.begin(), model.end());
      all.insert(all.end(), on.keys.begin(), on.keys.end());
      if (from_the_middle)
        all.insert(all.end(),
                   {"--resume", (path(whole) / "checkpoints" / "step-000000004").string()});
      const Exit exit = pretrain(run, all, {.ranks = on.ranks});
      EXPECT_EQ(exit.code, 0) << exit.err;
      return exit;
    };
    train("alone_" + tag, {{}, 1}, false);
    train(whole, layout, false);
    const std::vector<double> expected = metrics("alone_" + tag).losses();
    ASSERT_EQ(expected.size(), 8U);
    const auto expect_same_curve = [&](const std::string& run, std::size_t first) {
      const std::vector<double> losses = metrics(run).losses();
      ASSERT_EQ(losses.size(), 8 - first);
      for (std::size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], expected[first + i], 1e-10) << run << ", step " << first + i + 1;
    };
    expect_same_curve(whole, 0);
    expect_same_validations(whole, "alone_" + tag);

    const Exit same = train("same_" + tag, layout, true);
    EXPECT_NE(same.err.find("exact: losses and weights continue bit for bit"), std::string::npos)
        << same.err;
    EXPECT_EQ(hash("same_" + tag), hash(whole));
    for (std::size_t i = 0; i < others.size(); ++i) {
      const std::string other = "other" + std::to_string(i) + "_" + tag;
      const Exit exit = train(other, others[i], true);
      EXPECT_EQ(exit.err.find("exact:"), std::string::npos) << "another layout: other bits";
      expect_same_curve(other, 4);
    }
  }

  /// Returns loss and targets of each validation, and the targets of the last step.
  static void expect_same_validations(const std::string& run, const std::string& other) {
    const auto validations = [](const std::string& of) {
      std::vector<std::pair<double, std::int64_t>> found;
      for (const Json& line : metrics(of).lines)
        if (line.contains("valid_loss"))
          found.emplace_back(line["valid_loss"].get<double>(),
                             line["valid_targets"].get<std::int64_t>());
      return found;
    };
    const auto valid = validations(run);
    const auto expected = validations(other);
    ASSERT_EQ(valid.size(), 2U);
    ASSERT_EQ(expected.size(), 2U);
    for (std::size_t i = 0; i < valid.size(); ++i) {
      EXPECT_NEAR(valid[i].first, expected[i].first, 1e-10);
      EXPECT_EQ(valid[i].second, expected[i].second);
    }
    EXPECT_EQ(metrics(run).steps.at(8)["num_targets"], metrics(other).steps.at(8)["num_targets"]);
  }

  /// Expects that the run stopped on request: it has a checkpoint of its last step, and the metrics
  /// have a line for it.
  static std::int64_t expect_stopped(const std::string& run, const Exit& exit) {
    EXPECT_EQ(exit.code, 75) << exit.err;
    const Json status = RunProgram::status(run);
    EXPECT_EQ(status["state"], "stopped");
    EXPECT_EQ(status["exit_code"], 75);
    const std::int64_t step = status["step"].get<std::int64_t>();
    EXPECT_EQ(saved_steps(run).front(), step);
    EXPECT_EQ(metrics(run).steps.rbegin()->first, step) << "the last step's line is on disk";
    return step;
  }

  /// Expects that no step was lost or repeated, and that losses and bits equal those of the whole
  /// run.
  static void expect_equals_whole(const std::string& run, const std::string& whole) {
    const RunMetrics mine = metrics(run);
    const std::size_t resumes = mine.resumed_from.size();
    EXPECT_EQ(mine.lines.size(), static_cast<std::size_t>(kSteps) + resumes + (resumes + 1))
        << "a line a step, one a resume, one at each end";
    EXPECT_EQ(mine.losses(), metrics(whole).losses());
    EXPECT_EQ(hash(run), hash(whole));
  }
};

TEST_F(Resume, AfterSignalsIsBitwiseAndLosesNoStep) {
  ASSERT_EQ(pretrain("whole", kPlain, {.ranks = 2}).code, 0);
  std::vector<std::int64_t> stops;

  stops.push_back(expect_stopped("stopped", stop("stopped", kPlain, 2, SIGUSR2, Target::mpirun)));
  stops.push_back(expect_stopped("stopped", stop("stopped", kPlain, 1, SIGTERM, Target::rank)));
  stops.push_back(expect_stopped("stopped", stop("stopped", kPlain, 2, SIGINT, Target::rank)));
  ASSERT_EQ(pretrain("stopped", kPlain, {.ranks = 2}).code, 0);

  EXPECT_TRUE(std::is_sorted(stops.begin(), stops.end()));
  EXPECT_LT(stops.back(), kSteps) << "the last signal must have come before the end";
  EXPECT_EQ(metrics("stopped").resumed_from, stops);
  expect_equals_whole("stopped", "whole");
  EXPECT_EQ(status("stopped")["state"], "done");
}

TEST_F(Resume, IsBitwiseInBf16WithDropoutAndAsynchronousCheckpoints) {
  ASSERT_EQ(pretrain("whole_hard", kHard, {.ranks = 2}).code, 0);

  const std::int64_t stop_step =
      expect_stopped("hard", stop("hard", kHard, 5, SIGUSR2, Target::rank));
  ASSERT_EQ(pretrain("hard", kHard, {.ranks = 2}).code, 0);

  EXPECT_EQ(metrics("hard").resumed_from, std::vector<std::int64_t>{stop_step});
  expect_equals_whole("hard", "whole_hard");
  EXPECT_EQ(trireme({"checkpoint", "verify", path("hard").string()}).code, 0);
}

TEST_F(Resume, WithAPipelineIsBitwiseAndWorksOnAnyLayout) {
  expect_resumes_on(
      "stages", {"--model.num_layers", "3"},
      {{"--parallel.pp", "2", "--parallel.schedule", "zb-h1"}, 2},
      {{{"--parallel.pp", "2", "--parallel.tp", "2", "--parallel.schedule", "interleaved"}, 4},
       {{"--parallel.zero", "3"}, 2}});
  EXPECT_TRUE(metrics("whole_stages").steps.at(8).contains("bubble_share"));
}

TEST_F(Resume, WithShardedExpertsIsBitwiseAndWorksOnAnyLayout) {
  expect_resumes_on(
      "experts",
      {"--model.num_layers", "3", "--model.num_experts", "4", "--model.num_shared_experts", "1",
       "--model.first_dense_layers", "1", "--model.router_balance", "bias"},
      {{"--parallel.ep", "2"}, 2},
      {{{"--parallel.pp", "2", "--parallel.ep", "1"}, 2},
       {{"--parallel.tp", "2", "--parallel.etp", "1", "--parallel.ep", "2", "--parallel.zero", "3"},
        4}});
}

// The checkpoint keeps the schedule that was found from the times of the first updates. The order
// of pipeline actions changes the bits of a tied table with both uses on one rank.
TEST_F(Resume, WithASearchedScheduleIsBitwise) {
  expect_resumes_on(
      "searched", {"--model.num_layers", "4"},
      {{"--parallel.pp", "2", "--parallel.schedule", "auto", "--parallel.virtual_stages", "2"}, 2},
      {});
}

TEST_F(Resume, WithLocalStepsIsBitwiseFromASaveBetweenTwoAverages) {
  const Arguments local{"--train.steps",          "10", "--checkpoint.every",     "4",
                        "--checkpoint.keep_last", "0",  "--parallel.local_steps", "3"};
  ASSERT_EQ(pretrain("whole_local", local, {.ranks = 2}).code, 0);
  Arguments from_step_4 = local;
  from_step_4.insert(
      from_step_4.end(),
      {"--resume", (path("whole_local") / "checkpoints" / "step-000000004").string()});
  const Exit exit = pretrain("local", from_step_4, {.ranks = 2});
  ASSERT_EQ(exit.code, 0) << exit.err;

  std::vector<double> expected = metrics("whole_local").losses();
  ASSERT_EQ(expected.size(), 10U);
  expected.erase(expected.begin(), expected.begin() + 4);
  EXPECT_EQ(metrics("local").losses(), expected);
  EXPECT_EQ(hash("local"), hash("whole_local"));
  EXPECT_NE(exit.err.find("exact: losses and weights continue bit for bit"), std::string::npos)
      << exit.err;

  // The end of a shorter run adds one more average.
  Arguments five{"--train.steps",    "5",        "--parallel.local_steps", "3",
                 "--optim.schedule", "constant", "--checkpoint.every",     "0"};
  ASSERT_EQ(pretrain("five", five, {.ranks = 2}).code, 0);
  five[1] = "6";
  const Exit six = pretrain("five", five, {.ranks = 2});
  EXPECT_NE(six.err.find("averaged at step 5 for the save"), std::string::npos) << six.err;

  const Exit other =
      pretrain("whole_local", {"--train.steps", "11", "--parallel.local_steps", "2"}, {.ranks = 2});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("parallel.local_steps = 2"), std::string::npos) << other.err;

  const Exit sharded =
      pretrain("whole_local", {"--train.steps", "11", "--parallel.zero", "1"}, {.ranks = 2});
  EXPECT_EQ(sharded.code, 2);
  EXPECT_NE(sharded.err.find("nearest layout that works: --parallel.zero 0"), std::string::npos)
      << sharded.err;
}

TEST_F(Resume, LocalStepsSkipAnUpdateThatIsNotFiniteOnOneRankOnAll) {
  const Arguments local{"--train.steps",          "4", "--checkpoint.every",     "1",
                        "--checkpoint.keep_last", "0", "--parallel.local_steps", "9"};
  ASSERT_EQ(pretrain("skips", local, {.ranks = 2, .fault = "train.overflow:1:3:trigger"}).code, 0);
  auto steps = metrics("skips").steps;
  EXPECT_FALSE(steps[2]["skipped"].get<bool>());
  EXPECT_TRUE(steps[3]["skipped"].get<bool>());
  const auto hash_of_step = [&](const char* step) {
    return trireme({"checkpoint", "hash", (path("skips") / "checkpoints" / step).string()}).out;
  };
  EXPECT_EQ(hash_of_step("step-000000003"), hash_of_step("step-000000002"));
  EXPECT_NE(hash_of_step("step-000000004"), hash_of_step("step-000000003"));
}

TEST_F(Resume, OnAnotherNumberOfRanksContinuesTheSameLosses) {
  const Arguments fp64{"--train.steps",          "8", "--checkpoint.every", "4",
                       "--checkpoint.keep_last", "0", "--train.precision",  "fp64"};
  ASSERT_EQ(pretrain("two_ranks", fp64, {.ranks = 2}).code, 0);
  const std::vector<double> expected = metrics("two_ranks").losses();
  ASSERT_EQ(expected.size(), 8U);
  Arguments from_step_4 = fp64;
  from_step_4.insert(from_step_4.end(),
                     {"--resume", (path("two_ranks") / "checkpoints" / "step-000000004").string()});

  for (const int ranks : {1, 3}) {
    const std::string run = "on_" + std::to_string(ranks);
    const Exit exit = pretrain(run, from_step_4, {.ranks = ranks});
    ASSERT_EQ(exit.code, 0) << exit.err;
    const RunMetrics mine = metrics(run);
    EXPECT_EQ(mine.resumed_from, std::vector<std::int64_t>{4});
    ASSERT_EQ(mine.steps.size(), 4U);
    for (const auto& [step, line] : mine.steps) {
      const double whole = expected[static_cast<std::size_t>(step - 1)];
      EXPECT_NEAR(line["loss"].get<double>(), whole, 1e-10 * whole)
          << ranks << " ranks, step " << step;
    }
  }
  EXPECT_NE(hash("on_1"), "");
}

TEST_F(Resume, AFinishedRunHasNothingToDoAndTakesMoreSteps) {
  const Arguments constant{"--train.steps", "3", "--optim.schedule", "constant"};
  ASSERT_EQ(pretrain("more", constant).code, 0);
  const std::string three = hash("more");

  ASSERT_EQ(pretrain("more", constant).code, 0);
  EXPECT_EQ(hash("more"), three);
  Arguments longer = constant;
  longer[1] = "5";
  ASSERT_EQ(pretrain("more", longer).code, 0);

  EXPECT_EQ(saved_steps("more"), (std::vector<std::int64_t>{5, 3}));
  EXPECT_EQ(metrics("more").resumed_from, (std::vector<std::int64_t>{3, 3}));
  EXPECT_NE(hash("more"), three);
}

TEST_F(Resume, Fp16OverflowOfOneRankSkipsOnAllAndTheScaleSurvives) {
  const Arguments fp16{"--train.precision",      "fp16", "--checkpoint.every", "1",
                       "--checkpoint.keep_last", "0",    "--optim.schedule",   "constant"};
  Arguments four = fp16;
  four.insert(four.end(), {"--train.steps", "4"});
  Arguments six = fp16;
  six.insert(six.end(), {"--train.steps", "6"});
  ASSERT_EQ(pretrain("fp16", four, {.ranks = 2, .fault = "train.overflow:1:3:trigger"}).code, 0);
  auto steps = metrics("fp16").steps;
  const auto scale = [&](int step) { return steps[step]["loss_scale"].get<double>(); };
  EXPECT_FALSE(steps[2]["skipped"].get<bool>());
  EXPECT_TRUE(steps[3]["skipped"].get<bool>());
  EXPECT_TRUE(steps[3]["grad_norm"].is_null());
  EXPECT_EQ(scale(3), scale(2) / 2);
  const auto hash_of_step = [&](const char* step) {
    return trireme({"checkpoint", "hash", (path("fp16") / "checkpoints" / step).string()}).out;
  };
  EXPECT_EQ(hash_of_step("step-000000003"), hash_of_step("step-000000002"));
  EXPECT_NE(hash_of_step("step-000000004"), hash_of_step("step-000000003"));

  ASSERT_EQ(pretrain("fp16", six, {.ranks = 2}).code, 0);

  steps = metrics("fp16").steps;
  EXPECT_EQ(scale(5), scale(4));
  EXPECT_FALSE(steps[5]["skipped"].get<bool>());
}

TEST_F(Resume, AGradientThatIsNotFiniteEndsTheRunAndLeavesTheCheckpoint) {
  const Arguments bf16{
      "--train.precision",         "bf16", "--train.steps", "6", "--checkpoint.every", "2",
      "--train.max_skipped_steps", "0"};
  const Exit exit =
      pretrain("diverged", bf16,
               {.ranks = 2, .fault = "train.overflow:1:4:trigger", .keep_rank_codes = true});

  EXPECT_EQ(exit.code, 6) << exit.err;
  EXPECT_EQ(rank_codes(2), std::set<int>{6});
  EXPECT_NE(exit.err.find("step 4: the gradient is not finite"), std::string::npos) << exit.err;
  EXPECT_EQ(exit.err.find("not finite"), exit.err.rfind("not finite"))
      << "one message: " << exit.err;
  EXPECT_EQ(saved_steps("diverged"), std::vector<std::int64_t>{2});
  // The message ends with a command that resumes the run. The command works as printed.
  const std::size_t command = exit.err.rfind(std::string(TRIREME_PROGRAM) + " pretrain --resume");
  ASSERT_NE(command, std::string::npos) << exit.err;
  const std::string line = exit.err.substr(command, exit.err.find('\n', command) - command);
  const Exit advised =
      Process({"/bin/sh", "-c", line}, {{"OMP_NUM_THREADS", "1"}}, path("advised.log"))
          .wait(kLimit_s);
  EXPECT_EQ(advised.code, 0) << line << advised.err;
  EXPECT_NE(advised.err.find("optim.lr 0.003 -> 0.0015"), std::string::npos) << advised.err;
  EXPECT_EQ(metrics("diverged-2").resumed_from, std::vector<std::int64_t>{2});
  EXPECT_EQ(trireme({"checkpoint", "verify", path("diverged").string()}).code, 0);
  EXPECT_EQ(status("diverged")["state"], "failed");
  EXPECT_EQ(status("diverged")["exit_code"], 6);
}

}  // namespace
}  // namespace trireme
