/// Ranks that stop or hang without dying: the others detect it, name the rank, report where every
/// rank is, and all exit with 5 in bounded time. If a rank dies, the failure reports show which
/// rank failed first.

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::Process;

const Arguments kShort{"--train.steps",      "100000", "--train.log_every",      "0",
                       "--checkpoint.every", "3",      "--train.comm_timeout_s", "6"};

class Hang : public testing::RunProgram {
 protected:
  static Json failure_report(const std::string& run, int rank) {
    return read_json(path(run) / "verdicts" / ("rank-0000" + std::to_string(rank) + ".json"));
  }

  static std::string stacks(const std::string& run, int rank) {
    return read_file(path(run) / "stacks" / ("rank-0000" + std::to_string(rank) + ".txt"));
  }
};

TEST_F(Hang, AStoppedRankEndsAllWithinTheTimeout) {
  const auto process = start("stopped", kShort,
                             {.ranks = 2, .fault = "train.step:1:5:stop", .keep_rank_codes = true});

  const Exit exit = process->wait(60);

  ASSERT_FALSE(exit.timed_out) << "mpirun hangs: " << exit.err;
  EXPECT_EQ(rank_code(0), 5) << exit.err;
  EXPECT_NE(exit.code, 0);
  const Json mine = failure_report("stopped", 0);
  EXPECT_EQ(mine["kind"], "peer");
  EXPECT_EQ(mine["exit_code"], 5);
  EXPECT_EQ(mine["step"], 4);
  EXPECT_NE(mine["message"].get<std::string>().find("rank 1 (host "), std::string::npos) << mine;
  EXPECT_NE(mine["message"].get<std::string>().find("silent"), std::string::npos) << mine;
  EXPECT_EQ(status("stopped")["state"], "failed");
  EXPECT_EQ(status("stopped")["exit_code"], 5);
  EXPECT_EQ(saved_steps("stopped").front(), 3);
  EXPECT_NE(stacks("stopped", 0).find("trireme::train::train_loop"), std::string::npos)
      << stacks("stopped", 0);
}

TEST_F(Hang, ARankThatLivesButDoesNotMoveIsNamedWithTheCollectiveThatWaits) {
  const auto process = start(
      "stuck", kShort, {.ranks = 3, .fault = "train.reduce:1:5:hang", .keep_rank_codes = true});

  const Exit exit = process->wait(60);

  ASSERT_FALSE(exit.timed_out) << exit.err;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(rank_code(rank), 5) << "rank " << rank << ": " << exit.err;
    EXPECT_EQ(failure_report("stuck", rank)["kind"], rank == 1 ? "hang" : "peer");
    EXPECT_NE(stacks("stuck", rank).find("trireme::train::Step::start"), std::string::npos)
        << stacks("stuck", rank);
  }
  EXPECT_NE(stacks("stuck", 1).find("trireme::failpoint"), std::string::npos) << stacks("stuck", 1);
  EXPECT_NE(exit.err.find("rank 1 (host "), std::string::npos) << exit.err;
  EXPECT_NE(exit.err.find("is behind"), std::string::npos) << exit.err;
  EXPECT_NE(exit.err.find("all_reduce 'grads bucket"), std::string::npos) << exit.err;
  EXPECT_EQ(status("stuck")["state"], "failed");
  EXPECT_EQ(saved_steps("stuck").front(), 3);
}

TEST_F(Hang, ADeadPeerIsOnRecord) {
  const Exit exit = pretrain(
      "dead", kShort, {.ranks = 2, .fault = "train.step:1:5:kill9", .keep_rank_codes = true});

  EXPECT_EQ(rank_code(0), 5) << exit.err;
  EXPECT_EQ(status("dead")["state"], "failed");
  EXPECT_EQ(status("dead")["exit_code"], 5);
  EXPECT_EQ(status("dead")["step"], 4);
  const std::string message = failure_report("dead", 0)["message"];
  EXPECT_NE(message.find("rank 1 (host "), std::string::npos) << message;
  EXPECT_NE(message.find("closed unexpectedly"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(path("dead") / "verdicts" / "rank-00001.json"));
  EXPECT_FALSE(std::filesystem::exists(path("dead") / "stacks"));
}

TEST_F(Hang, AnErrorOfOneRankIsOnRecordThere) {
  const Exit exit = pretrain(
      "thrown", kShort, {.ranks = 2, .fault = "train.step:1:5:throw", .keep_rank_codes = true});

  EXPECT_EQ(rank_code(0), 4) << exit.err;
  const Json first = failure_report("thrown", 1);
  EXPECT_EQ(first["kind"], "error");
  EXPECT_EQ(first["exit_code"], 4);
  EXPECT_EQ(first["step"], 4);
  EXPECT_EQ(first["message"], "fault injected at train.step");
  EXPECT_EQ(failure_report("thrown", 0)["kind"], "peer");

  // The next attempt starts without old failure reports.
  Arguments four = kShort;
  four[1] = "4";
  ASSERT_EQ(pretrain("thrown", four, {.ranks = 2}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(path("thrown") / "verdicts"));
}

TEST_F(Hang, Sigusr1WritesStacksAndTrainingContinues) {
  const auto process = start("asked", kShort, {.ranks = 1});
  ASSERT_TRUE(testing::wait_for([&] { return !saved_steps("asked").empty(); }, 60));

  process->signal(SIGUSR1);
  const auto file = path("asked") / "stacks" / "rank-00000.txt";
  ASSERT_TRUE(testing::wait_for([&] { return std::filesystem::exists(file); }, 30));
  const std::int64_t then = saved_steps("asked").front();
  EXPECT_TRUE(testing::wait_for([&] { return saved_steps("asked").front() > then; }, 30));
  const std::string run = path("asked").string();
  const Exit attach =
      trireme({"job", "attach", run, "--rank", "0", "--dry-run", "--", "-batch", "-ex", "bt 3"});
  expect_refused(trireme({"job", "attach", run, "--rank", "1"}), 2, {"--rank 1", "0 to 0"});
  process->signal(SIGTERM);

  EXPECT_EQ(process->wait(kLimit_s).code, 75);
  EXPECT_EQ(attach.out, formatted("gdb -p {} -batch -ex 'bt 3'\n", process->pid())) << attach.err;
  const std::string text = read_file(file);
  EXPECT_NE(text.find(": SIGUSR1"), std::string::npos) << text;
  EXPECT_NE(text.find("(main)"), std::string::npos) << text;
  EXPECT_NE(text.find("trireme::data::DataLoader::produce"), std::string::npos) << text;
}

/// The ranks that have arrived name the missing rank instead of waiting in MPI_Init for ever.
TEST_F(Hang, ARankThatNeverStartsEndsTheOthersWithinTheLimit) {
  std::ofstream(path("short.toml")) << "[train]\nstart_timeout_s = 1.5\n";
  const auto before = std::chrono::steady_clock::now();

  const Exit exit = mpirun(
      2, {"bash", "-c", "if [[ $OMPI_COMM_WORLD_RANK == 1 ]]; then exec sleep 60; fi; exec \"$@\"",
          "bash", TRIREME_PROGRAM, "pretrain", "--data", set().string(), "--model.preset", "tiny",
          "--run", path("never").string(), "--train.steps", "1", "--config",
          path("short.toml").string()});

  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(30));
  EXPECT_EQ(exit.code, 5) << exit.err;
  EXPECT_NE(exit.err.find("the start took longer than 1.5 s (train.start_timeout_s); 1 of 2 ranks "
                          "have not started: rank 1"),
            std::string::npos)
      << exit.err;
  EXPECT_EQ(failure_report("never", 0)["lost"]["rank"], 1);
  EXPECT_TRUE(std::filesystem::exists(path("never.start")));

  const Exit done = pretrain("never", {"--train.steps", "1"}, {.ranks = 2});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_FALSE(std::filesystem::exists(path("never.start")));
}

TEST_F(Hang, ARankWaitsForADebugger) {
  expect_refused(pretrain("none", {"--wait-for-debugger", "1"}), 2,
                 {"--wait-for-debugger 1", "last rank is 0"});
  Arguments waits = kShort;
  waits.insert(waits.end(), {"--wait-for-debugger", "0"});
  const auto process = start("debugged", waits, {.ranks = 1});
  EXPECT_FALSE(testing::wait_for([&] { return !saved_steps("debugged").empty(); }, 4));

  ASSERT_EQ(::ptrace(PTRACE_SEIZE, process->pid(), nullptr, nullptr), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, process->pid(), nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(process->pid(), nullptr, __WALL), process->pid());
  ASSERT_EQ(::ptrace(PTRACE_DETACH, process->pid(), nullptr, nullptr), 0);
  EXPECT_TRUE(testing::wait_for([&] { return !saved_steps("debugged").empty(); }, 60));
  process->signal(SIGTERM);
  const Exit exit = process->wait(kLimit_s);
  EXPECT_EQ(exit.code, 75);
  EXPECT_NE(exit.err.find(formatted("waits for a debugger: gdb -p {}", process->pid())),
            std::string::npos)
      << exit.err;
}

}  // namespace
}  // namespace trireme
