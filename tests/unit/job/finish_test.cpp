#include "job/finish/finish.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "checkpoint/disk/run_lock.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "job/attempt.hpp"
#include "job/event_log.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::job {
namespace {

class FinishTest : public Scratch {
 protected:
  [[nodiscard]] RunDirectory run() const { return {at("run")}; }

  /// Adds an attempt of job 7 with a rank 0 that was killed after it had committed `committed`.
  void killed_leg(std::int64_t restart, std::int64_t committed) const {
    run().prepare();
    write_status(run(), "running", 0, committed, committed);
    EventLog event_log(run().event_log());
    event_log.open([] { return true; });
    event_log.start({{"7", restart, 0}, {"n1"}, 2, {}, -1});
    event_log.ready({1, 1});
    if (committed < 0) return;
    std::filesystem::create_directories(run().checkpoints() / "step-000000005");
    event_log.commit(committed);
  }

  static FinishFacts of(std::int64_t restart) {
    FinishFacts facts;
    facts.attempt_id = {"7", restart, 0};
    facts.srun_code = 137;
    return facts;
  }
};

/// While this object exists no file can be written, like on a full disk.
class FullDisk {
 public:
  FullDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }

  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

TEST_F(FinishTest, WaitsForSpaceToWriteItsDecision) {
  killed_leg(0, 5);
  auto full = std::make_optional<FullDisk>();
  std::thread space([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    full.reset();
  });

  const Decision decision = finish_attempt(run(), of(0), false);
  space.join();

  EXPECT_EQ(decision.action, "requeue");
  const EventLogContent content = read_event_log(run().event_log());
  ASSERT_EQ(content.attempts.size(), 1U);
  EXPECT_EQ(content.attempts[0].decision->action, "requeue");
}

TEST_F(FinishTest, WaitsForSpaceNoLongerThanTheJobLasts) {
  killed_leg(0, 5);
  const FullDisk full;
  ::setenv("SLURM_JOB_END_TIME", "1000", 1);

  const Error error = error_of([&] { finish_attempt(run(), of(0), false); });
  ::unsetenv("SLURM_JOB_END_TIME");

  EXPECT_EQ(error.kind(), ErrorKind::resource);
}

TEST_F(FinishTest, ALostStartThatIsDecidedTwiceCountsOnce) {
  EXPECT_EQ(finish_attempt(run(), of(0), false).failures_in_a_row, 1);
  const Decision again = finish_attempt(run(), of(0), false);

  EXPECT_EQ(again.failures_in_a_row, 1);
  EXPECT_EQ(again.action, "requeue");
  EXPECT_EQ(again.why, read_event_log(run().event_log()).attempts.at(0).decision->why);
  EXPECT_EQ(read_event_log(run().event_log()).attempts.size(), 1U);
}

TEST_F(FinishTest, ReadsFailureReportsAndWritesTheDecision) {
  killed_leg(0, 5);
  ::setenv("SLURM_JOB_ID", "7", 1);
  write_failure_report(run(), {1, "n2", "peer", 5, 6, "rank 0 (host n1)", {0, "n1", "killed"}});
  ::unsetenv("SLURM_JOB_ID");

  const Decision decision = finish_attempt(run(), of(0), false);

  EXPECT_EQ(decision.action, "requeue");
  EXPECT_EQ(decision.exit_code, 5);
  EXPECT_EQ(decision.root_cause.rank, 0);
  EXPECT_EQ(decision.root_cause.kind, "killed");
  EXPECT_EQ(decision.step_after, 5);
  const EventLogContent content = read_event_log(run().event_log());
  ASSERT_EQ(content.attempts.size(), 1U);
  EXPECT_EQ(content.attempts[0].failure_reports.size(), 1U);
  EXPECT_EQ(content.attempts[0].decision->action, "requeue");
  EXPECT_EQ(read_json(run().status())["state"], "failed") << "rank 0 could not say so";
  EXPECT_FALSE(std::filesystem::exists(run().root / "LOCK"));
}

TEST_F(FinishTest, ADryRunTouchesNothing) {
  killed_leg(0, 5);
  const std::uint64_t bytes = read_event_log(run().event_log()).bytes;

  EXPECT_EQ(finish_attempt(run(), of(0), true).action, "requeue");

  EXPECT_EQ(read_event_log(run().event_log()).bytes, bytes);
  EXPECT_EQ(read_json(run().status())["state"], "running");
  EXPECT_EQ(error_of([&] { finish_attempt({at("none")}, of(0), true); }).kind(), ErrorKind::data);
}

TEST_F(FinishTest, LostStartsAreRecordedBeforeTheRunDirectoryExists) {
  EXPECT_EQ(finish_attempt(run(), of(0), false).failures_in_a_row, 1);
  EXPECT_EQ(finish_attempt(run(), of(1), false).failures_in_a_row, 2);
  const Decision third = finish_attempt(run(), of(2), false);
  EXPECT_EQ(third.action, "stop");
  EXPECT_EQ(third.exit_code, 93);
  EXPECT_EQ(read_event_log(run().event_log()).attempts.size(), 3U);
  run().prepare();  // the next attempt can still take the directory
}

TEST_F(FinishTest, AStartThatWasRefusedAfterItCopiedWeightsLeavesTheDirectoryFree) {
  const std::filesystem::path base = at("run") / "base";
  std::filesystem::create_directories(base / "step-000000000");
  write_file_atomic(base / "latest", "step-000000000");
  EXPECT_NO_THROW(run().prepare());
}

TEST_F(FinishTest, AStartThatTookTooLongIsTheFaultOfTheRankThatIsMissing) {
  const auto wait_in_vain = [&](std::int64_t restart) {
    ::setenv("SLURM_JOB_ID", "7", 1);
    ::setenv("SLURM_RESTART_COUNT", cat(restart).c_str(), 1);
    write_failure_report(run(),
                         {1, "n1", "peer", 5, 0, "the start took longer", {2, "n2", "hang"}});
    ::unsetenv("SLURM_JOB_ID");
    ::unsetenv("SLURM_RESTART_COUNT");
    return finish_attempt(run(), of(restart), false);
  };
  run().prepare();

  const Decision first = wait_in_vain(0);
  EXPECT_EQ(first.action, "requeue");
  EXPECT_EQ(first.exit_code, 5);
  EXPECT_EQ(first.root_cause.rank, 2);
  EXPECT_EQ(first.root_cause.host, "n2");
  EXPECT_EQ(first.root_cause.kind, "hang");
  EXPECT_EQ(first.root_cause.message, "the start took longer");
  EXPECT_TRUE(first.exclude.empty());
  EXPECT_EQ(wait_in_vain(1).exclude, std::vector<std::string>{"n2"}) << "twice is no accident";
  run().prepare();  // the next attempt can still take the directory
  EXPECT_EQ(finish_attempt(run(), of(2), false).root_cause.rank, -1)
      << "the failure report of an earlier attempt";
}

TEST_F(FinishTest, ARefusedStartLeavesNothing) {
  FinishFacts refused = of(0);
  refused.srun_code = 2;

  EXPECT_EQ(finish_attempt(run(), refused, false).action, "stop");
  EXPECT_FALSE(std::filesystem::exists(run().root));

  std::filesystem::create_directories(at("photos"));
  std::ofstream(at("photos") / "cat.jpg") << "x";
  EXPECT_EQ(error_of([&] { finish_attempt({at("photos")}, of(0), false); }).kind(),
            ErrorKind::usage);
  EXPECT_FALSE(std::filesystem::exists(at("photos") / "journal.jsonl"));
}

TEST_F(FinishTest, ALaterAttemptThatTrainsIsNotTouched) {
  killed_leg(0, 5);
  const checkpoint::RunLock later(run().root,
                                  {.job_id = "7", .order = AttemptId{"7", 1, 0}.order()});

  const Decision decision = finish_attempt(run(), of(0), false);

  EXPECT_EQ(decision.action, "stop");
  EXPECT_NE(decision.why.find("in use"), std::string::npos) << decision.why;
  EXPECT_FALSE(read_event_log(run().event_log()).attempts[0].decision);
}

TEST_F(FinishTest, MaxFailuresComeFromTheEnvironment) {
  ::unsetenv("TRIREME_MAX_FAILURES");
  EXPECT_EQ(max_failures_from_environment(), 3);
  ::setenv("TRIREME_MAX_FAILURES", "5", 1);
  EXPECT_EQ(max_failures_from_environment(), 5);
  ::setenv("TRIREME_MAX_FAILURES", "unlimited", 1);
  EXPECT_FALSE(max_failures_from_environment());
  ::setenv("TRIREME_MAX_FAILURES", "a few", 1);
  EXPECT_EQ(max_failures_from_environment(), 3);
  ::unsetenv("TRIREME_MAX_FAILURES");
}

}  // namespace
}  // namespace trireme::job
