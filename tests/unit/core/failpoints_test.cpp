#include "core/process/failpoints.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "core/timer.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

class Failpoints : public testing::Test {
 protected:
  static void arm(const char* spec, int rank = 0) {
    ::setenv("TRIREME_FAULT", spec, 1);
    ::setenv("TRIREME_ALLOW_FAULTS", "1", 1);
    failpoints_init(rank);
  }

  void TearDown() override {
    arm("nowhere:*:*:trigger");
    ::unsetenv("TRIREME_FAULT");
    ::unsetenv("TRIREME_ALLOW_FAULTS");
  }
};

TEST_F(Failpoints, NothingHappensWithoutTheVariable) {
  failpoints_init(0);

  EXPECT_NO_THROW(failpoint("save"));
  EXPECT_FALSE(failpoint_triggered("save"));
}

TEST_F(Failpoints, ThrowsAtTheNthCallOnly) {
  arm("save:0:2:throw");

  EXPECT_NO_THROW(failpoint("save"));
  EXPECT_NO_THROW(failpoint("load"));
  EXPECT_EQ(error_of([] { failpoint("save"); }).kind(), ErrorKind::resource);
  EXPECT_NO_THROW(failpoint("save"));
}

TEST_F(Failpoints, HoldsForItsRankOnly) {
  arm("save:1:*:throw", 0);
  EXPECT_NO_THROW(failpoint("save"));

  arm("save:1:*:throw", 1);
  EXPECT_THROW(failpoint("save"), Error);
  EXPECT_THROW(failpoint("save"), Error);
}

TEST_F(Failpoints, TriggerLetsTheCallerDoTheDamage) {
  arm("tear:*:1:trigger,save:*:*:enospc");

  EXPECT_TRUE(failpoint_triggered("tear"));
  EXPECT_FALSE(failpoint_triggered("tear"));
  EXPECT_THROW(failpoint("save"), Error);
}

TEST_F(Failpoints, DelaySleepsASecond) {
  arm("slow:*:*:delay");
  const Timer timer;

  failpoint("slow");

  EXPECT_GE(timer.seconds(), 1.0);
}

TEST_F(Failpoints, RefusesWhatIsMalformedOrNotAllowed) {
  for (const char* spec : {"save", "save:0:1", "save:x:1:throw", "save:0:x:throw", "save:0:0:throw",
                           "save:-1:1:throw", "save:0:1:explode", "save:0:1:throw,"}) {
    EXPECT_EQ(error_of([&] { arm(spec); }).kind(), ErrorKind::usage) << spec;
  }
  ::setenv("TRIREME_FAULT", "save:0:1:throw", 1);
  ::unsetenv("TRIREME_ALLOW_FAULTS");
  EXPECT_EQ(error_of([] { failpoints_init(0); }).kind(), ErrorKind::usage);
}

using FailpointsDeathTest = Failpoints;

TEST_F(FailpointsDeathTest, EndsTheProcessAsAsked) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((arm("a:*:*:kill9"), failpoint("a")), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT((arm("a:*:*:exit"), failpoint("a")), testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace trireme
