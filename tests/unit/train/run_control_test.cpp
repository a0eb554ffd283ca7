#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "comm/launchers.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/files/json.hpp"
#include "core/process/stop_signals.hpp"
#include "job/attempt.hpp"
#include "job/run_directory.hpp"
#include "train/control/step_vote.hpp"
#include "train/control/stop_requests.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::train {
namespace {

TEST(StepVote, OneRankStopsOrSavesAllAndOneWriterHoldsAllBack) {
  comm::run_ranks(3, [](comm::Communicator& world) {
    StepVote vote(world);
    vote.post({.writer_done = true, .trace = ~std::uint64_t{0}});
    StepVote::Result result = vote.take();
    EXPECT_FALSE(result.stop);
    EXPECT_FALSE(result.save);
    EXPECT_TRUE(result.writers_done);
    EXPECT_EQ(result.trace, ~std::uint64_t{0} - 2) << "a sum modulo 2^64";

    vote.post({.stop = world.rank() == 2, .writer_done = world.rank() != 1});
    result = vote.take();
    EXPECT_TRUE(result.stop);
    EXPECT_FALSE(result.save);
    EXPECT_FALSE(result.writers_done);

    vote.post({.save = world.rank() == 0});
    result = vote.take();
    EXPECT_TRUE(result.save);
    EXPECT_FALSE(result.profile);

    vote.post({.profile = world.rank() == 0});
    result = vote.take();
    EXPECT_FALSE(result.save);
    EXPECT_TRUE(result.profile);
  });
}

TEST(CancelVote, AllRanksStopBeforeTheSamePartOfMany) {
  // The durations give a vote around each part, a vote around two parts, and a vote for each part.
  for (const double piece_s : {0.0, 0.4, 5.0}) {
    std::array<std::int64_t, 3> stopped_at{};
    comm::run_ranks(3, [&](comm::Communicator& world) {
      bool asked = false;
      CancelVote between(world, [&] { return asked; });
      between.set_item_time(piece_s);
      for (int step = 0; step < 3; ++step) {
        for (std::int64_t i = 0; i < 5; ++i) EXPECT_FALSE(between.before(i, 5));
      }
      std::int64_t i = 0;
      for (; i < 20; ++i) {
        if (between.before(i, 20)) break;
        if (world.rank() == 1 && i == 7) asked = true;
      }
      stopped_at[static_cast<std::size_t>(world.rank())] = i;
    });
    EXPECT_EQ(stopped_at[0], piece_s == 0.4 ? 10 : 9)
        << "requested during part 7, reported before 8";
    EXPECT_EQ(stopped_at[1], stopped_at[0]);
    EXPECT_EQ(stopped_at[2], stopped_at[0]);
  }
}

TEST(CancelVote, ReadsEveryVoteOfItemsThatAreCheckedInGroups) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    bool asked = false;
    CancelVote between(world, [&] { return asked; });
    between.set_item_time(0.2);  // a vote every 5 items
    for (int validation = 0; validation < 2; ++validation) {
      for (const std::int64_t n : {1, 7, 8, 9, 40, 41})
        for (std::int64_t i = 0; i < n; i += 4) EXPECT_FALSE(between.before(i, n, 4));
    }
    asked = world.rank() == 1;
    EXPECT_FALSE(between.before(0, 40, 4));
    EXPECT_FALSE(between.before(4, 40, 4));
    EXPECT_TRUE(between.before(8, 40, 4)) << "every second group of 4 has a vote";
  });
}

TEST(CancelVote, AllRanksStopBeforeAWholeUpdate) {
  comm::run_ranks(3, [](comm::Communicator& world) {
    bool asked = false;
    CancelVote between(world, [&] { return asked; });
    between.set_item_time(0.4);
    EXPECT_FALSE(between.before_all(5));
    asked = world.rank() == 1;
    EXPECT_TRUE(between.before_all(5));
    const std::size_t operations = world.recent().size();
    EXPECT_FALSE(between.before_all(2)) << "shorter than a second: no vote";
    EXPECT_EQ(world.recent().size(), operations);
  });
}

TEST(CancelVote, ShortWorkHasNoVote) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    CancelVote between(world, [] { return true; });
    between.set_item_time(0.001);
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_FALSE(between.before(i, 5));
    EXPECT_TRUE(world.traffic().empty());
  });
}

/// Runs `body` in a process of its own, because a process remembers a raised signal: later tests
/// would be asked to stop.
void in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

class StopRequestsTest : public Scratch {};

TEST_F(StopRequestsTest, ALimitThatWasMovedIsAskedForBeforeAStop) {
  const double now = unix_time_s();
  int asked = 0;
  double end = now + 3600;
  TimeLimit limit(now + 5, 0);
  StopRequests requests({at("run")}, true, limit, [&] {
    ++asked;
    return std::optional(end);
  });
  EXPECT_FALSE(requests.poll().stop) << "an hour is left now";
  EXPECT_FALSE(requests.poll().stop);
  EXPECT_EQ(asked, 1) << "only at the limit that is known";
  TimeLimit same_limit(now + 5, 0);
  StopRequests same({at("run")}, true, same_limit, [&] { return std::optional(now + 5); });
  EXPECT_TRUE(same.poll().stop);
  EXPECT_EQ(same.requested_by(), "time limit");
  StopRequests silent({at("run")}, true, same_limit, [] { return std::nullopt; });
  EXPECT_TRUE(silent.poll().stop) << "no answer: the limit that is known counts";
}

TEST_F(StopRequestsTest, AProfileRequestThatCannotBeRemovedIsNamedOnce) {
  TimeLimit limit(unix_time_s() + 3600, 0);
  StopRequests requests({at("run")}, true, limit, [] { return std::nullopt; });
  std::filesystem::create_directories(at("run/PROFILE/inner"));
  const auto poll_later = [&] {
    ::usleep(600'000);  // a look at the directory is due after 0.5 s
    (void)requests.poll();
    ::usleep(100'000);
    return requests.poll().profile;
  };
  EXPECT_TRUE(poll_later());
  EXPECT_FALSE(requests.take_profile_request());
  EXPECT_FALSE(poll_later()) << "the directory requests no second profile";
  std::filesystem::remove_all(at("run/PROFILE"));
  EXPECT_FALSE(poll_later());
  std::ofstream(at("run/PROFILE")) << "ranks=0";
  EXPECT_TRUE(poll_later());
  EXPECT_EQ(requests.take_profile_request(), "ranks=0");
  EXPECT_FALSE(std::filesystem::exists(at("run/PROFILE")));
}

void raise_signals() {
  install_stop_signals(comm::launched_rank(environ));
  EXPECT_EQ(stop_signal(), 0);
  EXPECT_NO_THROW(throw_if_stop_requested());
  ::testing::internal::CaptureStderr();
  ::raise(SIGUSR2);
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "trireme: SIGUSR2: will end with 75 before the first step; SIGINT twice ends at once\n");
  EXPECT_EQ(stop_signal(), SIGUSR2);
  ::raise(SIGTERM);
  EXPECT_EQ(stop_signal(), SIGTERM);
  ::raise(SIGHUP);
  EXPECT_EQ(stop_signal(), SIGHUP);
  EXPECT_EQ(signal_name(SIGHUP), "SIGHUP");
  EXPECT_EQ(signal_name(40), "signal 40");
  ::raise(SIGPIPE);
  ::raise(SIGINT);
  EXPECT_EQ(stop_signal(), SIGINT);
  ::raise(SIGTERM);  // a second signal does not end the process at once
  EXPECT_EXIT(::raise(SIGINT), ::testing::ExitedWithCode(130), "SIGINT: .*ends at once with 130");
  EXPECT_THROW(throw_if_stop_requested(), StoppedEarly);
}

TEST(Signals, AreRememberedNotObeyed) {
  in_child(raise_signals);
  EXPECT_EQ(stop_signal(), 0) << "a raised signal does not reach the other tests";
}

TEST(TimeLimit, LeavesTimeForTwoStepsTwoSavesAndTheExit) {
  TimeLimit limit(1000, 100e6);  // 100 MB: a guess of 2 s per save
  EXPECT_DOUBLE_EQ(limit.margin_s(), 4 + 10);
  limit.step_took(30);
  limit.validation_took(5);
  EXPECT_DOUBLE_EQ(limit.margin_s(), 60 + 5 + 4 + 10);
  limit.save_took(20);
  EXPECT_DOUBLE_EQ(limit.margin_s(), 60 + 5 + 40 + 10);
  EXPECT_FALSE(limit.reached(884.9));
  EXPECT_TRUE(limit.reached(885));
  for (int i = 0; i < 100; ++i) limit.step_took(1);
  EXPECT_DOUBLE_EQ(limit.margin_s(), 2 + 5 + 40 + 10) << "one slow step is forgotten";
  EXPECT_FALSE(TimeLimit(std::nullopt, 0).reached(1e12));
}

TEST(TimeLimit, ReadsTheSchedulersVariable) {
  ::unsetenv("SLURM_JOB_END_TIME");
  EXPECT_FALSE(job::job_end_from_environment());
  for (const char* wrong : {"", "soon", "12x", "-5", "0"}) {
    ::setenv("SLURM_JOB_END_TIME", wrong, 1);
    EXPECT_FALSE(job::job_end_from_environment()) << wrong;
  }
  ::setenv("SLURM_JOB_END_TIME", "1795000000", 1);
  EXPECT_EQ(job::job_end_from_environment(), 1795000000.0);
  ::unsetenv("SLURM_JOB_END_TIME");
}

class RunFolderTest : public Scratch {};

TEST_F(RunFolderTest, FilesOfRanksSortByRank) {
  EXPECT_EQ(job::rank_file(3, ".json"), "rank-00003.json");
  EXPECT_EQ(job::rank_file(12345, ".txt"), "rank-12345.txt");
  EXPECT_EQ(job::rank_file(123456, ""), "rank-123456");
}

TEST_F(RunFolderTest, AFailureReportIsPublishedAndCleared) {
  const job::RunDirectory folder{at("run")};
  folder.prepare();
  job::write_failure_report(folder,
                            {2, "n7", "error", 4, 11, "disk \xff full"});  // not UTF-8: replaced
  const Json failure_report = read_json(folder.failure_reports() / "rank-00002.json");
  EXPECT_EQ(failure_report["rank"], 2);
  EXPECT_EQ(failure_report["host"], "n7");
  EXPECT_EQ(failure_report["kind"], "error");
  EXPECT_EQ(failure_report["exit_code"], 4);
  EXPECT_EQ(failure_report["step"], 11);
  EXPECT_EQ(failure_report["time"].get<std::string>().size(), 24U);
  job::clear_failure_reports(folder);
  EXPECT_FALSE(std::filesystem::exists(folder.failure_reports()));
  job::write_failure_report(job::RunDirectory{"/proc/self/nothing"},
                            {});  // logs the problem and throws nothing
}

TEST_F(RunFolderTest, IsMadeOrTakenWhenEmptyOrOurs) {
  const job::RunDirectory fresh{at("a/b/run")};
  fresh.prepare();
  EXPECT_TRUE(std::filesystem::is_directory(fresh.checkpoints()));
  fresh.prepare();

  std::filesystem::create_directories(at("empty"));
  job::RunDirectory{at("empty")}.prepare();
  job::write_status(fresh, "running", 0, 3);
  std::ofstream(at("a/b/run/notes.txt")) << "a user's own";
  fresh.prepare();
  std::filesystem::create_directories(at("saved/checkpoints/step-000000003"));
  std::ofstream(at("saved/config.toml")) << "";
  job::RunDirectory{at("saved")}.prepare();
  std::filesystem::create_directories(at("killed/checkpoints"));
  std::ofstream(at("killed/LOCK")) << "";
  job::RunDirectory{at("killed")}.prepare();
}

TEST_F(RunFolderTest, SomethingElseIsRefusedUntouched) {
  std::filesystem::create_directories(at("photos"));
  std::ofstream(at("photos") / "cat.jpg") << "x";
  EXPECT_EQ(error_of([&] { job::RunDirectory{at("photos")}.prepare(); }).kind(), ErrorKind::usage);
  EXPECT_FALSE(std::filesystem::exists(at("photos") / "checkpoints"));
  for (const char* file : {"config.toml", "metrics.jsonl", "status.json", "checkpoints/model.pt"}) {
    const std::filesystem::path other = at("other") / file;
    std::filesystem::create_directories(other.parent_path());
    std::ofstream(other) << "{}";
    EXPECT_EQ(error_of([&] { job::RunDirectory{at("other")}.prepare(); }).kind(), ErrorKind::usage)
        << file;
    std::filesystem::remove_all(at("other"));
  }
  std::ofstream(at("file")) << "x";
  EXPECT_EQ(error_of([&] { job::RunDirectory{at("file")}.prepare(); }).kind(), ErrorKind::usage);
  for (const std::string& nowhere :
       {std::string(), std::string("/proc/self/x"), std::string(300, 'x')})
    EXPECT_EQ(error_of([&] { job::RunDirectory{nowhere}.prepare(); }).kind(), ErrorKind::usage)
        << nowhere;
}

TEST_F(RunFolderTest, StatusSaysHowItEnded) {
  const job::RunDirectory folder{at("run")};
  folder.prepare();
  job::write_status(folder, "stopped", 75, 12);
  const Json status = read_json(folder.status());
  EXPECT_EQ(status["state"], "stopped");
  EXPECT_EQ(status["exit_code"], 75);
  EXPECT_EQ(status["step"], 12);
}

TEST_F(RunFolderTest, ATreeCanBeDeletedBesideLibTorch) {
  // libtorch exports its own functions of std::filesystem. The linker must find those of the system
  // first.
  std::filesystem::create_directories(at("tree/deep"));
  std::ofstream(at("tree/deep") / "file") << "x";
  std::error_code code;
  EXPECT_EQ(std::filesystem::remove_all(at("tree"), code), 3U);
  EXPECT_FALSE(code);
}

}  // namespace
}  // namespace trireme::train
