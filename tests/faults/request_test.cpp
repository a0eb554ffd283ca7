/// Tests requests to save or stop, from signals, files and the scheduler's time limit, and what
/// remains if mpirun itself is stopped.

#include <chrono>
#include <csignal>
#include <ctime>
#include <fstream>
#include <thread>

#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::Process;

const Arguments kEndless{"--train.steps",      "1000000", "--train.log_every",      "0",
                         "--checkpoint.every", "1000000", "--checkpoint.keep_last", "0"};

class Request : public testing::RunProgram {
 protected:
  static void touch(const std::string& run, const char* file) {
    std::ofstream(path(run) / file) << "";
  }

  static bool steps_are_done(const std::string& run) {
    return testing::wait_for([&] { return metrics_lines(run) > 3; }, 60);
  }

  static std::size_t metrics_lines(const std::string& run) {
    std::ifstream file(path(run) / "metrics.jsonl");
    std::size_t lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  }

  static std::vector<std::int64_t> validated_steps(const std::string& run) {
    std::vector<std::int64_t> steps;
    std::ifstream file(path(run) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json one = parse_json(line, "metrics.jsonl");
      if (one.contains("eval_step")) steps.push_back(one["eval_step"].get<std::int64_t>());
    }
    return steps;
  }

  /// Returns the output of a run so far.
  static bool has_said(const std::string& run, const std::string& text) {
    const auto log = path(run + ".log.err");
    return std::filesystem::exists(log) && read_file(log).find(text) != std::string::npos;
  }

  static void wait_until_said(const std::string& run, const std::string& text) {
    ASSERT_TRUE(testing::wait_for([&] { return has_said(run, text); }, 60)) << text;
  }

  static void expect_stopped(const std::string& run, const Exit& exit) {
    EXPECT_EQ(exit.code, 75) << exit.err;
    EXPECT_EQ(status(run)["state"], "stopped");
    ASSERT_FALSE(saved_steps(run).empty());
    EXPECT_EQ(saved_steps(run).front(), status(run)["step"].get<std::int64_t>());
  }

  /// Expects that the next start resumes from the last committed step.
  static void expect_resumes(const std::string& run) {
    ASSERT_FALSE(saved_steps(run).empty());
    const std::int64_t newest = saved_steps(run).front();
    ASSERT_EQ(trireme({"checkpoint", "verify", path(run).string()}).code, 0);
    const auto again = start(run, kEndless, {.ranks = 2});
    ASSERT_TRUE(testing::wait_for([&] { return !metrics(run).resumed_from.empty(); }, 60));
    testing::signal_process(testing::rank_pid(again->pid(), 0), SIGTERM);
    EXPECT_EQ(again->wait(kLimit_s).code, 75);
    EXPECT_EQ(metrics(run).resumed_from.front(), newest);
  }
};

TEST_F(Request, SaveSavesAndContinuesStopStops) {
  const auto process = start("files", kEndless, {.ranks = 2});
  ASSERT_TRUE(steps_are_done("files"));

  touch("files", "SAVE");
  ASSERT_TRUE(
      testing::wait_for([&] { return !std::filesystem::exists(path("files") / "SAVE"); }, 30));
  EXPECT_EQ(saved_steps("files").size(), 1U) << "SAVE goes when the checkpoint is there";
  EXPECT_TRUE(process->running());
  touch("files", "STOP");
  const Exit exit = process->wait(kLimit_s);

  expect_stopped("files", exit);
  EXPECT_NE(exit.err.find("(the file STOP)"), std::string::npos) << exit.err;
  EXPECT_FALSE(std::filesystem::exists(path("files") / "STOP"));
  EXPECT_EQ(saved_steps("files").size(), 2U);
  expect_resumes("files");
}

TEST_F(Request, SighupStops) {
  const auto process = start("hangup", kEndless);
  ASSERT_TRUE(steps_are_done("hangup"));

  process->signal(SIGHUP);
  const Exit exit = process->wait(kLimit_s);

  expect_stopped("hangup", exit);
  EXPECT_NE(exit.err.find("(SIGHUP)"), std::string::npos) << exit.err;
}

TEST_F(Request, StopsByItselfBeforeTheTimeLimit) {
  const std::time_t end = std::time(nullptr) + 16;

  const Exit exit =
      pretrain("limit", kEndless,
               {.ranks = 2, .environment = {{"SLURM_JOB_END_TIME", std::to_string(end)}}});

  EXPECT_LT(std::time(nullptr), end);
  expect_stopped("limit", exit);
  EXPECT_NE(exit.err.find("the time limit"), std::string::npos) << exit.err;
}

// Updates have six micro-batches. A validation shows when the first update is done.
const Arguments kSixMicroBatches{"--train.steps",      "3", "--train.micro_batch", "1",
                                 "--train.eval_every", "1", "--checkpoint.every",  "0"};

TEST_F(Request, IsAnsweredAtOnceAndDropsTheUpdateUnderWay) {
  Arguments arguments = kSixMicroBatches;
  arguments.insert(arguments.end(), {"--data.valid_path", set().string()});
  // A micro-batch of rank 1 takes a second.
  const auto process =
      start("long_step", arguments, {.ranks = 2, .fault = "train.forward:1:*:delay"});
  wait_until_said("long_step", "step 1  validation loss");

  testing::signal_process(testing::rank_pid(process->pid(), 0), SIGTERM);
  EXPECT_TRUE(testing::wait_for(
      [] { return has_said("long_step", "SIGTERM: will save and end with 75"); }, 0.9))
      << "from the signal's arrival, not from a micro-batch's end";
  EXPECT_TRUE(process->running());
  const Exit exit = process->wait(kLimit_s);

  expect_stopped("long_step", exit);
  EXPECT_EQ(status("long_step")["step"], 1) << "the second update is not counted";
  EXPECT_NE(exit.err.find("(SIGTERM) at step 1/3: 1 step, "), std::string::npos) << exit.err;
  EXPECT_EQ(metrics("long_step").steps.size(), 1U);
  ASSERT_EQ(pretrain("long_step", arguments, {.ranks = 2}).code, 0);
  ASSERT_EQ(pretrain("long_step_whole", arguments, {.ranks = 2}).code, 0);
  EXPECT_EQ(hash("long_step"), hash("long_step_whole"));
  EXPECT_EQ(read_file(path("long_step") / "chain.txt"),
            read_file(path("long_step_whole") / "chain.txt"));
}

TEST_F(Request, EndsAValidationBetweenItsBatchesAndMakesUpForIt) {
  Arguments arguments = kSixMicroBatches;
  arguments.insert(arguments.end(), {"--data.valid_path", set().string()});
  const auto process =
      start("validation", arguments, {.ranks = 2, .fault = "train.validate:*:*:delay"});
  wait_until_said("validation", "steps 0 to 3");
  for (int i = 0; i < 50; ++i) testing::sleep_briefly();  // the first step is done

  testing::signal_process(testing::rank_pid(process->pid(), 1), SIGUSR2);
  const Exit exit = process->wait(30);  // the whole validation would take minutes

  EXPECT_EQ(exit.code, 75) << exit.err;
  EXPECT_NE(exit.err.find("[rank 1] SIGUSR2: "), std::string::npos)
      << "it alone got it: " << exit.err;
  EXPECT_EQ(exit.err.find("validation loss"), std::string::npos) << exit.err;
  const Exit resumed = pretrain("validation", arguments, {.ranks = 2});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(validated_steps("validation"), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_F(Request, AStopDuringTheLastValidationLeavesItToDo) {
  Arguments arguments = kSixMicroBatches;
  arguments.insert(arguments.end(), {"--data.valid_path", set().string(), "--train.steps", "1"});
  const auto process = start("last", arguments, {.ranks = 2, .fault = "train.validate:*:*:delay"});
  wait_until_said("last", "steps 0 to 1");
  for (int i = 0; i < 50; ++i) testing::sleep_briefly();

  testing::signal_process(testing::rank_pid(process->pid(), 0), SIGTERM);
  expect_stopped("last", process->wait(30));
  EXPECT_EQ(pretrain("last", arguments, {.ranks = 2}).code, 0);

  EXPECT_EQ(validated_steps("last"), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(status("last")["state"], "done");
}

TEST_F(Request, WhileLibTorchLoadsBeginsNothing) {
  // The dynamic loader prints when it calls the constructors of the libraries, long before main.
  const auto process = start("loading", kEndless, {.environment = {{"LD_DEBUG", "files"}}});
  wait_until_said("loading", "calling init: ");

  process->signal(SIGTERM);
  const Exit exit = process->wait(60);

  EXPECT_EQ(exit.code, 75);
  EXPECT_NE(exit.err.find("SIGTERM: will end with 75 before the first step"), std::string::npos);
  EXPECT_NE(exit.err.find("no checkpoint was saved"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("loading")));
}

TEST_F(Request, WhileASetOpensBeginsNothing) {
  const auto process = start("opening", kEndless, {.ranks = 2, .fault = "data.open_set:0:1:stop"});
  pid_t opening = -1;
  ASSERT_TRUE(testing::wait_for(
      [&] {
        if (opening < 0) opening = testing::rank_pid(process->pid(), 0);
        return opening > 0 && testing::process_state(opening) == 'T';
      },
      60));

  testing::signal_process(opening, SIGTERM);
  testing::signal_process(opening, SIGCONT);
  const Exit exit = process->wait(60);

  EXPECT_EQ(exit.code, 75) << exit.err;
  EXPECT_FALSE(std::filesystem::exists(path("opening")));
}

TEST_F(Request, TermTwiceStopsAndASecondIntEndsAtOnce) {
  for (const int number : {SIGTERM, SIGINT}) {
    const std::string run = "twice_" + std::to_string(number);
    const auto process =
        start(run, kEndless, {.fault = "train.forward:0:1:delay,train.forward:0:2:delay"});
    wait_until_said(run, "compute peak");
    // Wait for the delay in the first step. A stop before this step ends at once.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));

    process->signal(number);
    wait_until_said(run, "twice ends at once");
    process->signal(number);
    const Exit exit = process->wait(60);

    EXPECT_EQ(exit.code, number == SIGINT ? 130 : 75) << exit.err;
  }
}

/// mpirun forwards SIGTERM and SIGINT, and kills the ranks a second or two later. The last save may
/// be incomplete by then, but no committed checkpoint is lost.
class EndMpirun : public Request, public ::testing::WithParamInterface<int> {};

TEST_P(EndMpirun, LosesNothingThatWasCommitted) {
  const std::string run = "mpirun_" + std::to_string(GetParam());
  const auto process = start(run, kEndless, {.ranks = 2, .keep_rank_codes = true});
  ASSERT_TRUE(steps_are_done(run));
  touch(run, "SAVE");
  ASSERT_TRUE(testing::wait_for([&] { return !saved_steps(run).empty(); }, 30));
  const std::int64_t committed = saved_steps(run).front();

  process->signal(GetParam());
  const Exit exit = process->wait(30);

  ASSERT_FALSE(exit.timed_out) << exit.err;
  EXPECT_NE(exit.code, 0) << "an interrupted mpirun must not report success";
  RecordProperty("mpirun_code", exit.code);
  RecordProperty("rank_0_code", rank_code(0));
  EXPECT_GE(saved_steps(run).front(), committed);
  if (rank_code(0) == 75) {
    EXPECT_EQ(status(run)["state"], "stopped");
    EXPECT_GT(saved_steps(run).front(), committed);
  }
  expect_resumes(run);
}

INSTANTIATE_TEST_SUITE_P(Signals, EndMpirun, ::testing::Values(SIGTERM, SIGINT));

}  // namespace
}  // namespace trireme
