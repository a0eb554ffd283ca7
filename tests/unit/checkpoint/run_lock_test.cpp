#include "checkpoint/disk/run_lock.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

RunLockOptions fast() {
  return {.job_id = "42", .heartbeat_s = 0.05, .takeover_s = 0.5};
}

/// Starts a child that takes the lock and holds it until it is killed.
pid_t hold_in_child(const fs::path& run) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(run, fast());
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

std::string foreign_record(const std::string& counter) {
  return "{\"counter\": \"" + counter +
         "\", "
         "\"host\":\"elsewhere\",\"pid\":7,\"job_id\":\"9\",\"boot_id\":\"b\",\"pid_space\":\"p\","
         "\"start_time\":\"1\",\"nonce\":\"abc\"}\n";
}

TEST(RunLock, SecondHolderIsRefusedByName) {
  const TempDirectory run;
  const pid_t child = hold_in_child(run.path());
  const std::string text =
      message_of(ErrorKind::usage, [&] { const RunLock lock(run.path(), fast()); });
  EXPECT_NE(text.find(formatted("process {}", child)), std::string::npos) << text;
  EXPECT_NE(text.find("job 42"), std::string::npos) << text;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(RunLock, IsFreeAfterTheHolderEnds) {
  const TempDirectory run;
  { const RunLock lock(run.path(), fast()); }
  EXPECT_TRUE(fs::is_empty(run.path()));
  const RunLock lock(run.path(), fast());
}

TEST(RunLock, IsTakenOverFromADeadProcessEvenAsAZombie) {
  const TempDirectory run;
  const pid_t child = hold_in_child(run.path());
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT),
            0);  // dead, but not yet waited for
  { const RunLock lock(run.path(), fast()); }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::is_empty(run.path()));
}

TEST(RunLock, OnAnotherHostIsTakenOverIfItsCounterStops) {
  const TempDirectory run;
  overwrite(run / "LOCK", foreign_record("00000000000000000005"));
  const auto begin = std::chrono::steady_clock::now();
  const RunLock lock(run.path(), fast());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(450));
}

TEST(RunLock, OnAnotherHostIsRespectedWhileItsCounterMoves) {
  const TempDirectory run;
  overwrite(run / "LOCK", foreign_record("00000000000000000005"));
  std::thread beat([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    overwrite(run / "new", foreign_record("00000000000000000006"));
    fs::rename(run / "new", run / "LOCK");
  });
  const std::string text =
      message_of(ErrorKind::usage, [&] { const RunLock lock(run.path(), fast()); });
  beat.join();
  EXPECT_NE(text.find("host elsewhere, job 9"), std::string::npos) << text;
}

TEST(RunLock, HolderNoticesThatItLostTheRun) {
  const TempDirectory run;
  const RunLock lock(run.path(), fast());
  lock.check();
  overwrite(run / "other", foreign_record("00000000000000000001"));
  fs::rename(run / "other", run / "LOCK");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  message_of(ErrorKind::usage, [&] { lock.check(); });
}

TEST(RunLock, ALaterAttemptOfTheSameJobFencesALiveEarlierOne) {
  const TempDirectory run;
  RunLockOptions later = fast();
  later.order = 2;
  const pid_t child = hold_in_child(run.path());
  {
    RunLock fencing(run.path(), later);
    EXPECT_TRUE(fencing.is_held());
    // The earlier job does not get the lock back, and no other job gets it.
    message_of(ErrorKind::usage, [&] { const RunLock earlier(run.path(), fast()); });
    RunLockOptions other = fast();
    other.job_id = "43";
    other.order = 9;
    message_of(ErrorKind::usage, [&] { const RunLock lock(run.path(), other); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the child's heartbeats
    EXPECT_TRUE(fencing.is_held());
  }
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "it lives, and knows by itself";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(RunLock, UnreadableRecordIsAnErrorNotATakeover) {
  const TempDirectory run;
  overwrite(run / "LOCK", "not ours");
  message_of(ErrorKind::data, [&] { const RunLock lock(run.path(), fast()); });
  EXPECT_EQ(read_file(run / "LOCK"), "not ours");
}

/// Starts many processes at once on the lock of a dead process, and expects that exactly one gets
/// it; `faulty` of them die during the takeover.
void race(const fs::path& run, int contenders) {
  int go[2];
  int won[2];
  ASSERT_EQ(::pipe(go), 0);
  ASSERT_EQ(::pipe(won), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < contenders; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(go[1]);
      char byte = 0;
      (void)!::read(go[0], &byte, 1);
      try {
        const RunLock lock(run, fast());
        (void)!::write(won[1], "w", 1);
        ::pause();
      } catch (const Error& error) {
        ::_exit(error.kind() == ErrorKind::usage ? 2 : 1);
      }
    }
    children.push_back(child);
  }
  ::close(go[0]);
  ::close(go[1]);  // all start
  ::close(won[1]);
  char byte = 0;
  EXPECT_EQ(::read(won[0], &byte, 1), 1) << "no process took the lock";
  int refused = 0;
  std::vector<pid_t> alive;
  for (int wait = 0; wait < 500 && refused < contenders - 1; ++wait) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);
    if (ended <= 0) {
      ::usleep(10'000);
      continue;
    }
    std::erase(children, ended);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 2);
    ++refused;
  }
  EXPECT_EQ(refused, contenders - 1);
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  EXPECT_EQ(::read(won[0], &byte, 1), 0) << "two took the lock";
  ::close(won[0]);
}

TEST(RunLock, RaceOnADeadLockHasOneWinnerEveryTime) {
  const TempDirectory run;
  for (int round = 0; round < 25; ++round)
    // Each winner is killed, so the lock of the next round belongs to a dead process.
    race(run.path(), 8);
}

TEST(RunLock, AHolderThatStoodStillConfirmsNothing) {
  const TempDirectory run;
  // No other process sees its heartbeat.
  RunLock lock(run.path(), {.job_id = "", .heartbeat_s = 3600});
  lock.confirm();
  overwrite(run / "LOCK", foreign_record("00000000000000000001"));

  message_of(ErrorKind::usage, [&] { lock.confirm(); });
  message_of(ErrorKind::usage, [&] { lock.check(); });
}

TEST(RunLock, AnInvalidLockFileSaysWhatToDo) {
  const TempDirectory run;
  for (const char* content : {"", "{}",
                              "\x7f"
                              "ELF"}) {
    overwrite(run / "LOCK", content);
    const std::string text =
        message_of(ErrorKind::data, [&] { const RunLock lock(run.path(), fast()); });
    EXPECT_NE(text.find("delete it if no job"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trireme::checkpoint
