#include "report/goodput.hpp"

#include <gtest/gtest.h>

#include "unit/report/run_files.hpp"

namespace trireme::report {
namespace {

class GoodputTest : public RunFiles {
 protected:
  using Accounting = std::map<std::string, std::vector<scheduler::JobTimes>>;

  [[nodiscard]] Goodput goodput(const Accounting& accounting = {}) const {
    const job::EventLogContent events = job::read_event_log(run().event_log());
    const MetricsFile metrics = read_metrics_file(run().metrics());
    const std::vector<job::SubmissionRecord> submissions = job::read_submissions(run());
    return account({events.attempts, metrics, submissions, accounting});
  }

  /// Expects the seconds of each class, in the order of kActivityNames.
  static void expect_wall(const Goodput& goodput, const std::vector<double>& seconds) {
    ASSERT_EQ(seconds.size(), kActivityNames.size());
    for (std::size_t i = 0; i < seconds.size(); ++i)
      EXPECT_NEAR(goodput.wall.seconds[i], seconds[i], 1e-6) << kActivityNames[i];
    EXPECT_NEAR(goodput.wall.total(), goodput.end - goodput.begin, 1e-6);
  }

  /// Returns a line of a step of 2 s that ends at `time`.
  static std::string step(int number, int attempt, int time) {
    return "{\"step\":" + std::to_string(number) + ",\"time\":" + std::to_string(time) +
           ",\"step_time_s\":2,\"loss\":1,\"attempt\":" + std::to_string(attempt) + "}";
  }

  /// Two attempts outside a job. SIGKILL ended the first one after step 3, and nothing was saved.
  void write_killed_run() const {
    write_events(run(), {start(1, 12, "", 0, "null", R"(,"age_s":2)"),
                         event(1, 16, "ready") + R"(,"step":1,"start_s":6)",
                         start(2, 52, "", 0, "null", R"(,"age_s":2)"),
                         event(2, 56, "ready") + R"(,"step":1,"start_s":6)",
                         event(2, 61, "end") + R"(,"state":"done","exit_code":0,"step":3)"});
    write(run().metrics(), {step(1, 0, 16), step(2, 0, 18), step(3, 0, 20), step(1, 1, 56),
                            step(2, 1, 58), step(3, 1, 60)});
  }
};

TEST_F(GoodputTest, EverySecondOfAKnownRunHasOneClass) {
  write_known_run();

  const Goodput known = goodput();

  // queue startup train comm data checkpoint validation redone down
  expect_wall(known, {140, 30, 24, 1, 1, 7, 6, 14, 8});
  EXPECT_EQ(known.begin, 1000);
  EXPECT_EQ(known.end, 1231);
  EXPECT_EQ(known.redone_steps, 2);
  EXPECT_EQ(known.committed_lost, 0);
  EXPECT_EQ(known.device_s, 2 * (42 + 26));
  EXPECT_TRUE(known.notes.empty());
  ASSERT_EQ(known.courses.size(), 2U);
  EXPECT_EQ(known.courses[0].begin, 1110);
  EXPECT_EQ(known.courses[0].end, 1152);
  EXPECT_EQ(known.courses[0].to_step, 4);
  EXPECT_EQ(known.courses[1].from_step, 2);
}

TEST_F(GoodputTest, TimeBetweenAttemptsOutsideAJobIsDownTime) {
  write_killed_run();

  const Goodput killed = goodput();

  expect_wall(killed, {0, 8, 6, 0, 0, 1, 0, 6, 30});
  EXPECT_EQ(killed.redone_steps, 3);
}

TEST_F(GoodputTest, AccountingOfTheSchedulerGivesTheTimeInTheQueue) {
  write_events(run(), {start(1, 100, "9", 0, "null", R"(,"age_s":0)"),
                       event(1, 110, "end") + R"(,"state":"failed","exit_code":4,"step":0)"});
  const Goodput without = goodput();
  expect_wall(without, {0, 10, 0, 0, 0, 0, 0, 0, 0});
  ASSERT_EQ(without.notes.size(), 1U);
  EXPECT_NE(without.notes[0].find("job 9 waited in the queue is unknown"), std::string::npos);

  const Goodput with = goodput({{"9", {{40.0, 90.0, 110.0}}}});

  expect_wall(with, {50, 20, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_TRUE(with.notes.empty());
}

TEST_F(GoodputTest, ALaterJobWaitsSinceItsSubmission) {
  write(run().submit() / "2" / "job.json", {R"({"job":"8","chain":1,"time":50})"});
  write_events(run(), {start(1, 0, "7", 0, "null", R"(,"age_s":0)"),
                       event(1, 30, "end") + R"(,"state":"failed","exit_code":4,"step":0)",
                       start(2, 80, "8", 0, "null", R"(,"age_s":0)"),
                       event(2, 85, "end") + R"(,"state":"failed","exit_code":4,"step":0)"});

  expect_wall(goodput(), {30, 35, 0, 0, 0, 0, 0, 0, 20});
}

TEST_F(GoodputTest, ARestartInTheSameJobIsDownTime) {
  write_events(run(), {start(1, 0, "7", 0, "null", R"(,"age_s":0)"),
                       event(1, 30, "end") + R"(,"state":"failed","exit_code":4,"step":0)",
                       start(2, 80, "7", 0, "null", R"(,"age_s":0)"),
                       event(2, 85, "end") + R"(,"state":"failed","exit_code":4,"step":0)"});

  expect_wall(goodput(), {0, 35, 0, 0, 0, 0, 0, 0, 50});
}

TEST_F(GoodputTest, LinesOfSeveralStepsCountAllSteps) {
  write_events(run(), {start(1, 10, "", 0, "null", R"(,"age_s":0)"),
                       event(1, 12, "ready") + R"(,"step":1,"start_s":2)",
                       event(1, 32, "end") + R"(,"state":"done","exit_code":0,"step":10)"});
  write(run().metrics(), {step(5, 0, 21), step(10, 0, 31)});

  expect_wall(goodput(), {0, 1, 20, 0, 0, 1, 0, 0, 0});
}

TEST_F(GoodputTest, WithoutMetricsTheStepsAreTraining) {
  write_killed_run();
  std::filesystem::remove(run().metrics());

  const Goodput blind = goodput();

  expect_wall(blind, {0, 12, 5, 0, 0, 0, 0, 0, 34});
  EXPECT_EQ(blind.notes.size(), 2U);
}

TEST_F(GoodputTest, ACommittedStepThatIsRepeatedIsLost) {
  write_events(run(),
               {start(1, 10, "", 0, "null"), event(1, 12, "ready") + R"(,"step":1,"start_s":2)",
                event(1, 20, "commit") + R"(,"step":6)", start(2, 30, "", 0, "4"),
                event(2, 32, "ready") + R"(,"step":5,"start_s":2)"});

  EXPECT_EQ(goodput().committed_lost, 2);
}

TEST_F(GoodputTest, PartsThatExceedTheStepAreScaled) {
  write_events(run(), {start(1, 10, "", 0, "null", R"(,"age_s":0)"),
                       event(1, 14, "ready") + R"(,"step":1,"start_s":4)",
                       event(1, 14, "end") + R"(,"state":"done","exit_code":0,"step":1)"});
  write(run().metrics(),
        {R"({"step":1,"time":14,"step_time_s":4,"save_s":6,"data_wait_s":2,"attempt":0})"});

  expect_wall(goodput(), {0, 0, 0, 0, 1, 3, 0, 0, 0});
}

}  // namespace
}  // namespace trireme::report
