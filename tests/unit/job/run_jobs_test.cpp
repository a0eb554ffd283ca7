
#include <gtest/gtest.h>

#include <map>

#include "core/files/directories.hpp"
#include "core/timer.hpp"
#include "job/event_log.hpp"
#include "job/watch/run_view.hpp"
#include "scheduler/slurm/output.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::job {
namespace {

/// Returns a controller that knows these jobs: lines of `scontrol -o show job` by job id.
scheduler::SchedulerQuery controller(const std::map<std::string, std::string>& jobs) {
  return [jobs](const std::string& id) {
    const auto found = jobs.find(id);
    if (found == jobs.end())
      return scheduler::read_scheduler_answer(1, "Invalid job id specified\n");
    return scheduler::read_scheduler_answer(0, found->second);
  };
}

std::string job(const std::string& id, const std::string& state, int restarts = 0) {
  return formatted("JobId={} JobState={} Reason=Priority Restarts={} Requeue=1\n", id, state,
                   restarts);
}

class RunJobsTest : public Scratch {
 protected:
  [[nodiscard]] RunDirectory run() const { return {at("run")}; }

  [[nodiscard]] std::string state(const std::map<std::string, std::string>& jobs) const {
    return view_run(run(), unix_time_s(), controller(jobs)).state;
  }

  void submitted(const std::string& id, std::int64_t chain, double time) const {
    const auto place = run().submit() / id;
    make_directories(place);
    write_submission(place, {id, chain, time});
  }

  /// Adds an attempt of job 7 that has saved step 5. If `action` is given, the attempt has this
  /// restart decision.
  void attempt(const std::string& action, const std::string& why = "") const {
    run().prepare();
    write_status(run(), "running", 0, 5, 5);
    EventLog event_log(run().event_log());
    event_log.open([] { return true; });
    event_log.start({{"7", 0, 0}, {"n1"}, 2, {}, -1, unix_time_s() + 600});
    event_log.commit(5);
    if (action.empty()) return;
    event_log.end({"stopped", 75, 5});
    event_log.decision({.action = action, .why = why}, {"7", 0, 0});
  }
};

TEST_F(RunJobsTest, AJobThatWaitsIsPendingBeforeTheRunExists) {
  submitted("7", 1, unix_time_s());
  EXPECT_EQ(state({{"7", job("7", "PENDING")}}), "pending");
  EXPECT_EQ(view_run(run(), 1, controller({{"7", job("7", "PENDING")}})).reason, "Priority");
  EXPECT_EQ(state({{"7", job("7", "RUNNING")}}), "running");
  EXPECT_EQ(state({{"7", job("7", "CANCELLED")}}), "cancelled");
  EXPECT_EQ(state({{"7", job("7", "FAILED")}}), "failed");
  EXPECT_EQ(view_run(run(), 1).state, "queued") << "no controller is asked";
  const auto silent = [](const std::string&) { return scheduler::SchedulerAnswer{}; };
  EXPECT_EQ(view_run(run(), 1, silent).state, "queued");
}

TEST_F(RunJobsTest, ARequeuedJobWaitsOrIsCancelled) {
  attempt("requeue");
  EXPECT_EQ(state({{"7", job("7", "RUNNING")}}), "queued") << "its script has not ended";
  EXPECT_EQ(state({{"7", job("7", "COMPLETING")}}), "queued");
  EXPECT_EQ(state({{"7", job("7", "PENDING", 1)}}), "saved and waiting");
  EXPECT_EQ(state({{"7", job("7", "RUNNING", 1)}}), "running");
  EXPECT_EQ(state({{"7", job("7", "CANCELLED", 1)}}), "cancelled");
  EXPECT_EQ(state({}), "used up");
}

TEST_F(RunJobsTest, AnAttemptIsUnderWayUntilItIsDecided) {
  attempt("");
  EXPECT_EQ(state({{"7", job("7", "RUNNING")}}), "running");
  EXPECT_EQ(state({{"7", job("7", "NODE_FAIL")}}), "lost");
  EXPECT_EQ(state({{"7", job("7", "PENDING", 1)}}), "saved and waiting");
}

TEST_F(RunJobsTest, AChainIsUsedUpAfterItsLastJob) {
  attempt("requeue");
  submitted("9", 2, unix_time_s() - 100);
  const std::string first = job("7", "COMPLETED");
  EXPECT_EQ(state({{"7", first}, {"9", first + job("9", "PENDING")}}), "saved and waiting");
  EXPECT_EQ(state({{"7", first}, {"9", first + job("9", "COMPLETED")}}), "used up");
}

TEST_F(RunJobsTest, ACancelledRunAndAnotherJobAfterItAreReported) {
  attempt("stop", kWhyCancelled);
  EXPECT_EQ(state({{"7", job("7", "CANCELLED")}}), "cancelled");
  EXPECT_EQ(state({}), "cancelled") << "the controller has forgotten the job";
  submitted("12", 1, unix_time_s() + 1);
  EXPECT_EQ(state({{"7", job("7", "CANCELLED")}, {"12", job("12", "PENDING")}}), "pending");
}

TEST_F(RunJobsTest, TheControllersLimitCounts) {
  attempt("");
  const std::string line = job("7", "RUNNING");
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const auto view =
      view_run(run(), 1769860800 - 50, controller({{"7", "EndTime=2026-01-31T12:00:00 " + line}}));
  ::unsetenv("TZ");
  ::tzset();
  EXPECT_EQ(view.job_left_s, 50);
}

}  // namespace
}  // namespace trireme::job
