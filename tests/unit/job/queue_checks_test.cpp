#include "job/submit/queue_checks.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.hpp"
#include "job/finish/finish.hpp"
#include "scheduler/slurm/output.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::job {
namespace {

using Ids = std::vector<std::string>;

Ids ids(const std::vector<SubmitProblem>& problems) {
  Ids all;
  for (const SubmitProblem& one : problems) all.push_back(one.id);
  return all;
}

SubmitRequest request(const std::string& after = "") {
  SubmitRequest one;
  one.run = "runs/a";
  one.after = after;
  return one;
}

TEST(QueueChecks, ARunInUseQueuedOrDoneTakesNoOtherJob) {
  EXPECT_EQ(ids(run_problems(request(), {"", "", 20, 0})), Ids{});
  EXPECT_EQ(ids(run_problems(request(), {"running", "7", 20, 5})), Ids{"run-in-use"});
  EXPECT_EQ(ids(run_problems(request("7"), {"running", "7", 20, 5})), Ids{});
  EXPECT_EQ(ids(run_problems(request(), {"pending", "7", 20, 0})), Ids{"run-queued"});
  EXPECT_EQ(ids(run_problems(request(), {"saved and waiting", "7", 20, 5})), Ids{"run-queued"});
  EXPECT_EQ(ids(run_problems(request("3:7"), {"pending", "7", 20, 0})), Ids{});
  EXPECT_EQ(ids(run_problems(request(), {"done", "7", 20, 20})), Ids{"run-done"});
  EXPECT_EQ(ids(run_problems(request(), {"done", "7", 40, 20})), Ids{}) << "more steps";
  EXPECT_EQ(ids(run_problems(request(), {"used up", "7", 20, 5})), Ids{});
}

TEST(QueueChecks, JobsThatNeverEndWellAreNotWaitedFor) {
  const auto says = [](const std::string& state) {
    return [state](const std::string& id) {
      if (state.empty())
        return scheduler::read_scheduler_answer(1, "slurm: Invalid job id specified");
      return scheduler::read_scheduler_answer(0, formatted("JobId={} JobState={}\n", id, state));
    };
  };
  EXPECT_EQ(ids(after_problems(request(), says(""))), Ids{});
  EXPECT_EQ(ids(after_problems(request("99999"), says(""))), Ids{"after-unknown"});
  EXPECT_EQ(ids(after_problems(request("7:9"), says("RUNNING"))), Ids{});
  EXPECT_EQ(ids(after_problems(request("7"), says("COMPLETED"))), Ids{});
  EXPECT_EQ(ids(after_problems(request("7:9"), says("FAILED"))),
            (Ids{"after-failed", "after-failed"}));
  const auto silent = [](const std::string&) { return scheduler::SchedulerAnswer{}; };
  EXPECT_EQ(ids(after_problems(request("7"), silent)), Ids{});
  const Error error = error_of([&] { (void)after_problems(request("seven"), says("")); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
}

class RefusalTest : public Scratch {};

TEST_F(RefusalTest, IsTheLastErrorOfTheNewestStart) {
  EXPECT_EQ(last_error_in(at("none")), "");
  std::ofstream(at("out")) << "job       7, restart 0, 2026-01-31\n0: trireme: error: the first\n";
  EXPECT_EQ(last_error_in(at("out")), "the first");
  std::ofstream(at("out"), std::ios::app) << "job       7, restart 1, 2026-01-31\n0: step 1\n";
  EXPECT_EQ(last_error_in(at("out")), "") << "that error was another start's";
  std::ofstream(at("out"), std::ios::app) << "1: trireme: error: optim.lr = -1\n1:   see: help\n";
  EXPECT_EQ(last_error_in(at("out")), "optim.lr = -1");
}

}  // namespace
}  // namespace trireme::job
