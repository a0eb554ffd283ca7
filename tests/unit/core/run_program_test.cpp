#include "core/process/run_program.hpp"

#include <gtest/gtest.h>

#include "core/process/process_age.hpp"
#include "core/timer.hpp"

namespace trireme {
namespace {

TEST(RunProgram, TellsItsEndAndWhatItSaid) {
  const ProgramEnd end = run_program({"sh", "-c", "echo out; echo err >&2; cat; exit 7"}, 10);

  EXPECT_EQ(end.code, 7);
  EXPECT_FALSE(end.timed_out);
  EXPECT_EQ(end.out, "out\nerr\n");
  EXPECT_EQ(run_program({"sh", "-c", "kill -9 $$"}, 10).code, 137);
  EXPECT_EQ(run_program({"no-such-program-anywhere"}, 10).code, 127);
}

TEST(RunProgram, EndsWhatTakesTooLong) {
  const Timer timer;

  const ProgramEnd end = run_program({"sh", "-c", "echo begun; sleep 60"}, 0.5);

  EXPECT_TRUE(end.timed_out);
  EXPECT_EQ(end.out, "begun\n");
  EXPECT_LT(timer.seconds(), 30);
}

TEST(RunningTimer, IgnoresTheTimeBetweenDistantQueries) {
  RunningTimer timer;
  const double now_s = RunningTimer::now_s();

  EXPECT_NEAR(timer.seconds_at(now_s + 2), 2, 1);
  EXPECT_NEAR(timer.seconds_at(now_s + 6), 6, 1);
  EXPECT_NEAR(timer.seconds_at(now_s + 100), 6, 1) << "it stood still";
  EXPECT_NEAR(timer.seconds_at(now_s + 101), 7, 1);
  timer.restart();
  EXPECT_NEAR(timer.seconds(), 0, 1);
}

TEST(ProcessAge, GrowsFromTheStartOfTheProcess) {
  const double age_s = process_age_s();

  EXPECT_GE(age_s, 0);
  EXPECT_LT(age_s, 3600);
  const Timer timer;
  while (timer.seconds() < 0.05) continue;
  EXPECT_GE(process_age_s(), age_s);
}

}  // namespace
}  // namespace trireme
