#include "job/finish/decide.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "scheduler/slurm/output.hpp"

namespace trireme::job {
namespace {

constexpr double kStart_s = 100;
constexpr double kBegan = 1000;

/// Returns an attempt of job 7 that ended with `code`, `trained_s` after its first step.
Attempt attempt(std::int64_t restart, int code, double trained_s, std::int64_t resumed_from,
                std::int64_t committed, const std::string& asked_by = "SIGUSR2") {
  Attempt one;
  one.number = restart + 1;
  one.began_at = kBegan;
  one.start = AttemptStart{{"7", restart, 0}, {"n1"}, 2, {{"config", "a"}}, resumed_from};
  one.ready = AttemptReady{1, kStart_s};
  one.ready_at = kBegan + kStart_s;
  one.committed = committed;
  one.ended_at = one.ready_at + trained_s;
  one.last_at = one.ended_at;
  if (code == kExitStopped) one.requests.push_back({"stop", asked_by, committed});
  one.end = AttemptEnd{code == 0 ? "done" : code == kExitStopped ? "stopped" : "failed", code, 1};
  return one;
}

FinishFacts facts(std::int64_t restart, std::int64_t newest) {
  FinishFacts one;
  one.attempt_id = {"7", restart, 0};
  one.srun_code = 143;
  one.job = scheduler::read_slurm_job(formatted(
      "JobId=7 JobState=RUNNING Reason=None Requeue=1 Restarts={} PreemptTime=None", restart));
  one.newest_checkpoint = newest;
  one.now_s = kBegan + 5000;
  return one;
}

void says(FinishFacts& one, const std::string& text) {
  one.job = scheduler::read_slurm_job("JobId=7 " + text);
}

Decision decide_with(Attempt one, const Decision& before, const FinishFacts& after) {
  Attempt last = attempt(0, 5, 200, -1, -1);
  last.number = 1;
  last.decision = before;
  one.number = 2;
  return decide({last, one}, after);
}

TEST(Decide, ACompletedRunIsDone) {
  FinishFacts ended = facts(0, 40);
  says(ended, "JobState=COMPLETING Reason=None Restarts=0");  // cancelled a moment too late

  const Decision decision = decide({attempt(0, 0, 10, -1, 40)}, ended);

  EXPECT_EQ(decision.action, "done");
  EXPECT_EQ(decision.exit_code, 0);
  EXPECT_EQ(decision.step_after, 40);
  EXPECT_EQ(decision.root_cause.kind, "");
}

TEST(Decide, AStoppedAttemptIsRequeuedIfItTrainedLongerThanItsStartTook) {
  const Decision good = decide({attempt(0, 75, kStart_s + 1, -1, 5)}, facts(0, 5));
  EXPECT_EQ(good.action, "requeue");
  EXPECT_EQ(good.exit_code, 75);
  EXPECT_EQ(good.failures_in_a_row, 0);
  EXPECT_EQ(good.root_cause.kind, "request");
  EXPECT_EQ(good.root_cause.message, "SIGUSR2");

  const Decision brief = decide({attempt(0, 75, kStart_s - 1, -1, 5)}, facts(0, 5));
  EXPECT_EQ(brief.action, "requeue") << "once may be an accident";
  EXPECT_EQ(brief.failures_in_a_row, 1);

  const Decision third =
      decide_with(attempt(1, 75, 1, 5, 6), {.failures_in_a_row = 2}, facts(1, 6));
  EXPECT_EQ(third.action, "stop") << "one step per attempt is no progress";
  EXPECT_EQ(third.exit_code, kExitNoProgress);
  EXPECT_EQ(third.failures_in_a_row, 3);
}

TEST(Decide, TwentySuccessfulAttemptsAreNoFailures) {
  std::vector<Attempt> attempts;
  for (std::int64_t restart = 0; restart < 30; ++restart) {
    attempts.push_back(attempt(restart, restart % 2 == 0 ? 75 : 5, 200, restart - 1, restart));
    const Decision decision = decide(attempts, facts(restart, restart));
    ASSERT_EQ(decision.action, "requeue") << restart;
    ASSERT_EQ(decision.failures_in_a_row, 0);
    if (restart % 3 != 0) attempts.back().decision = decision;  // some job scripts are cut off
  }
}

TEST(Decide, FailuresComeBackWhileTheCommitGrowsAndAFewTimesWithout) {
  for (const int code : {4, 5}) {
    const Decision grew =
        decide_with(attempt(1, code, 1, 5, 10), {.failures_in_a_row = 2}, facts(1, 10));
    EXPECT_EQ(grew.action, "requeue");
    EXPECT_EQ(grew.exit_code, code);
    EXPECT_EQ(grew.failures_in_a_row, 0);
    const Decision stuck =
        decide_with(attempt(1, code, 900, 10, -1), {.failures_in_a_row = 1}, facts(1, 10));
    EXPECT_EQ(stuck.action, "requeue");
    EXPECT_EQ(stuck.failures_in_a_row, 2);
    const Decision last =
        decide_with(attempt(1, code, 900, 10, -1), {.failures_in_a_row = 2}, facts(1, 10));
    EXPECT_EQ(last.action, "stop");
    EXPECT_EQ(last.exit_code, kExitNoProgress);
    EXPECT_NE(last.why.find("10 before and is 10 now"), std::string::npos) << last.why;
  }
}

TEST(Decide, TheLimitOfFailuresIsTheUsers) {
  FinishFacts none = facts(1, 10);
  none.max_failures = 0;
  EXPECT_EQ(decide_with(attempt(1, 5, 900, 10, -1), {}, none).action, "stop");
  EXPECT_EQ(decide_with(attempt(1, 5, 900, 5, 10), {}, none).action, "requeue")
      << "the restart helped";
  FinishFacts any = facts(1, 10);
  any.max_failures.reset();
  EXPECT_EQ(decide_with(attempt(1, 5, 900, 10, -1), {.failures_in_a_row = 99}, any).action,
            "requeue");
}

TEST(Decide, FailuresCountOverJobsAndAnewForAnotherConfiguration) {
  Attempt first = attempt(0, 5, 900, 10, -1);
  first.decision = Decision{.failures_in_a_row = 2};
  Attempt second = attempt(0, 5, 900, 10, -1);
  second.number = 2;
  second.start->attempt_id.job = "8";
  FinishFacts of_second = facts(0, 10);
  of_second.attempt_id.job = "8";
  EXPECT_EQ(decide({first, second}, of_second).action, "stop");

  second.start->hashes["config"] = "b";
  EXPECT_EQ(decide({first, second}, of_second).failures_in_a_row, 1);

  first.decision.reset();  // its job script was cut off together with its node
  second.start->hashes["config"] = "a";
  EXPECT_EQ(decide({first, second}, of_second).failures_in_a_row, 2);
  first.start->attempt_id.job = "";  // a user started it by hand
  EXPECT_EQ(decide({first, second}, of_second).failures_in_a_row, 1);
}

TEST(Decide, AStartThatWasLostIsAFailure) {
  const std::vector<Attempt> before{attempt(0, 75, 200, -1, 8)};
  for (const int code : {0, 137, 139, 143, 233}) {
    FinishFacts lost = facts(1, 8);
    lost.srun_code = code;
    const Decision decision = decide(before, lost);
    EXPECT_EQ(decision.action, "requeue") << code;
    EXPECT_EQ(decision.exit_code, 5) << code;
    EXPECT_EQ(decision.failures_in_a_row, 1);
    EXPECT_EQ(decision.root_cause.kind, "killed");
    EXPECT_EQ(decision.step_before, 8);
  }
  FinishFacts refused = facts(1, 8);
  refused.srun_code = 2;
  EXPECT_EQ(decide(before, refused).action, "stop");
  EXPECT_EQ(decide(before, refused).exit_code, 2);
  EXPECT_EQ(decide(before, refused).root_cause.kind, "error") << "nothing was killed";
  EXPECT_EQ(decide({}, facts(0, -1)).action, "requeue") << "the very first one";
}

TEST(Decide, ARunThatAUserCancelledStaysCancelled) {
  const Decision stop_file = decide({attempt(0, 75, 1, -1, 5, "STOP")}, facts(0, 5));
  EXPECT_EQ(stop_file.action, "stop");
  EXPECT_EQ(stop_file.exit_code, 0);

  FinishFacts cancelled = facts(0, 5);
  says(cancelled, "JobState=COMPLETING Reason=None Restarts=0 Requeue=1 PreemptTime=None");
  const Decision scancel = decide({attempt(0, 75, 900, -1, 5, "SIGTERM")}, cancelled);
  EXPECT_EQ(scancel.action, "stop");
  EXPECT_EQ(scancel.exit_code, 75);
}

TEST(Decide, OnlyAPersonCancels) {
  const std::vector<Attempt> attempts{attempt(0, 75, 900, -1, 5, "SIGTERM")};
  for (const char* text :
       {"JobState=COMPLETING Reason=TimeLimit Restarts=0", "JobState=TIMEOUT Reason=None",
        "JobState=SUSPENDED Reason=None", "", "JobState=RUNNING Reason=None",
        "JobState=RUNNING Reason=None PreemptTime=2026-11-21T02:32:19"}) {
    FinishFacts ended = facts(0, 5);
    says(ended, text);
    const Decision decision = decide(attempts, ended);
    EXPECT_EQ(decision.action, "requeue") << text;
    EXPECT_FALSE(decision.is_requeued) << text;
  }
  for (const char* text : {"JobState=COMPLETING Reason=None Restarts=1",
                           "JobState=COMPLETING Reason=None PreemptTime=2026-11-21T02:32:19"}) {
    FinishFacts ended = facts(0, 5);
    says(ended, text);
    EXPECT_EQ(decide(attempts, ended).action, "requeue") << text;
    EXPECT_TRUE(decide(attempts, ended).is_requeued) << text;
  }
}

TEST(Decide, APreemptionOfAnEarlierStartIsOver) {
  FinishFacts cancelled = facts(1, 5);
  says(cancelled,
       "JobState=COMPLETING Reason=None Restarts=1 StartTime=2026-11-21T02:40:00 "
       "PreemptTime=2026-11-21T02:32:19");

  EXPECT_EQ(decide({attempt(1, 75, 900, -1, 5, "SIGTERM")}, cancelled).action, "stop");
}

TEST(Decide, AJobKilledAtItsTimeLimitCountsByHowLongItTrained) {
  Attempt killed = attempt(0, 5, 0, -1, -1);
  killed.end.reset();
  FinishFacts limit = facts(0, -1);
  says(limit, "JobState=COMPLETING Reason=TimeLimit Restarts=0");

  const Decision decision = decide({killed}, limit);

  EXPECT_EQ(decision.action, "requeue");
  EXPECT_EQ(decision.failures_in_a_row, 0);
  EXPECT_EQ(decision.root_cause.kind, "request");
}

TEST(Decide, IncurableEndsEnd) {
  for (const int code : {1, 2, 3, 6}) {
    const Decision decision = decide({attempt(0, code, 900, -1, 50)}, facts(0, 50));
    EXPECT_EQ(decision.action, "stop") << code;
    EXPECT_EQ(decision.exit_code, code);
  }
}

TEST(Decide, ALaterAttemptOfTheJobOwnsTheRun) {
  const std::vector<Attempt> attempts{attempt(0, 2, 1, -1, 5), attempt(1, 0, 1, 5, 9)};
  Attempt later = attempts[1];
  later.end.reset();

  const Decision decision = decide({attempts[0], later}, facts(0, 9));

  EXPECT_EQ(decision.action, "stop");
  EXPECT_NE(decision.why.find("later attempt"), std::string::npos);
  EXPECT_EQ(decision.exit_code, 5);
}

TEST(Decide, SaysWhatToDoIfRequeueIsForbidden) {
  FinishFacts forbidden = facts(0, 5);
  says(forbidden, "JobState=RUNNING Reason=None Requeue=0 Restarts=0");

  const Decision decision = decide({attempt(0, 75, 900, -1, 5)}, forbidden);

  EXPECT_EQ(decision.action, "stop");
  EXPECT_EQ(decision.exit_code, 75);
  EXPECT_NE(decision.why.find("--chain"), std::string::npos);
}

TEST(Decide, ALostNodeIsTheCauseAndIsLeftOut) {
  Attempt failed = attempt(1, 5, 900, 5, 10);
  failed.failure_reports.push_back({0, "n1", "peer", 5, 9, "silent", {3, "n2", "hang"}});
  FinishFacts lost = facts(1, 10);
  lost.lost_nodes = {"n2"};
  lost.may_restart = true;
  const Decision decision = decide_with(failed, {}, lost);
  EXPECT_EQ(decision.root_cause.kind, "node");
  EXPECT_EQ(decision.exclude, (std::vector<std::string>{"n2"}));
  EXPECT_EQ(decision.action, "restart") << "the job has other nodes";

  failed.failure_reports.clear();
  EXPECT_EQ(decide_with(failed, {}, lost).root_cause.host, "n2");
  const Decision asked = decide_with(attempt(1, 75, 900, 5, 10), {}, lost);
  EXPECT_EQ(asked.action, "requeue") << "its time is up";
}

TEST(Decide, AHostThatFailsTwiceIsLeftOut) {
  Attempt failed = attempt(1, 5, 900, 5, 10);
  failed.failure_reports.push_back({0, "n1", "peer", 5, 9, "rank 3 ...", {3, "n2", "killed"}});
  const Decision before{.root_cause = {1, "n2", "killed", ""}};
  EXPECT_EQ(decide_with(failed, before, facts(1, 10)).exclude, (std::vector<std::string>{"n2"}));
  const Decision other{.root_cause = {1, "n3", "killed", ""}};
  EXPECT_TRUE(decide_with(failed, other, facts(1, 10)).exclude.empty());
}

TEST(RootCause, IsNeverTheEcho) {
  Attempt one;
  one.failure_reports.push_back(
      {0, "n1", "peer", 4, 9, "rank 2: it ends with an error", {2, "n2", "error"}});
  one.failure_reports.push_back({1, "n1", "error", 5, 9, "all_reduce timed out"});
  EXPECT_EQ(root_cause_of(one, 143).rank, 2) << "a wait in vain is an echo";
  one.failure_reports.push_back({2, "n2", "error", 4, 9, "disk full"});
  EXPECT_EQ(root_cause_of(one, 143).message, "disk full");
  EXPECT_EQ(root_cause_of(one, 143).kind, "error");
  EXPECT_EQ(root_cause_of(one, 143).host, "n2");
}

// Rank 0 hung and continued. Then it lost rank 1, which had ended because of the hang.
TEST(RootCause, IsTheEarliestReport) {
  Attempt one;
  one.failure_reports.push_back(
      {0, "n1", "peer", 5, 9, "rank 1 is gone", {1, "n2", "killed"}, {}, 104.5});
  one.failure_reports.push_back(
      {1, "n2", "peer", 5, 9, "rank 0 hangs", {0, "n1", "hang"}, {}, 102.0});
  EXPECT_EQ(root_cause_of(one, 143).rank, 0);
  EXPECT_EQ(root_cause_of(one, 143).host, "n1");
  EXPECT_EQ(root_cause_of(one, 143).kind, "hang");
  one.failure_reports[1].time.reset();  // older versions wrote no times
  EXPECT_EQ(root_cause_of(one, 143).rank, 1);
}

TEST(RootCause, TellsTheKinds) {
  const auto kind_of = [](const FailureReport& failure_report) {
    Attempt one;
    one.failure_reports.push_back(failure_report);
    return root_cause_of(one, 137).kind;
  };
  EXPECT_EQ(kind_of({0, "n1", "peer", 5, 9, "m", {3, "n2", "killed"}}), "killed");
  EXPECT_EQ(kind_of({0, "n1", "peer", 5, 9, "m", {3, "n2", "hang"}}), "hang");
  EXPECT_EQ(kind_of({0, "n1", "peer", 5, 9, "m", {3, "n2", "oom"}}), "oom");
  EXPECT_EQ(kind_of({1, "n1", "hang", 5, 9, "it stood still"}), "hang");
  EXPECT_EQ(kind_of({1, "n1", "error", 4, 9, "CUDA out of memory"}), "oom");
  EXPECT_EQ(kind_of({1, "n1", "error", 4, 9, "no space left"}), "error");
  EXPECT_EQ(kind_of({1, "n1", "peer", 2, 0, "another rank failed"}), "error");
  const RootCause none = root_cause_of({}, 139);
  EXPECT_EQ(none.kind, "killed");
  EXPECT_EQ(none.rank, -1);
  EXPECT_NE(none.message.find("139"), std::string::npos);
}

}  // namespace
}  // namespace trireme::job
