/// Requests to save or stop, from signals, files and the scheduler's clock; and what is left when
/// mpirun itself is told to end.

#include <csignal>
#include <ctime>
#include <fstream>

#include "core/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::Process;

const Arguments kEndless{"--train.steps",
                         "1000000",
                         "--train.log_every",
                         "0",
                         "--checkpoint.every",
                         "1000000",
                         "--checkpoint.keep_last",
                         "0"};

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

  static void expect_stopped(const std::string& run, const Exit& exit) {
    EXPECT_EQ(exit.code, 75) << exit.err;
    EXPECT_EQ(status(run)["state"], "stopped");
    ASSERT_FALSE(saved_steps(run).empty());
    EXPECT_EQ(saved_steps(run).front(), status(run)["step"].get<std::int64_t>());
  }

  /// The next start goes on from the last committed step.
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

TEST_F(Request, SaveSavesAndGoesOnStopStops) {
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
      pretrain("limit",
               kEndless,
               {.ranks = 2, .environment = {{"SLURM_JOB_END_TIME", std::to_string(end)}}});

  EXPECT_LT(std::time(nullptr), end);
  expect_stopped("limit", exit);
  EXPECT_NE(exit.err.find("the time limit"), std::string::npos) << exit.err;
}

/// mpirun passes SIGTERM and SIGINT on and kills the ranks a second or two later, whatever they do:
/// the last save may or may not be done by then, but nothing that was committed is lost.
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
  EXPECT_NE(exit.code, 0) << "mpirun was told to end: never a success";
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
