#include "train/health/early_stop.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace trireme::train {
namespace {

TEST(EarlyStop, IsDueAfterValidationsWithoutALowerLoss) {
  EarlyStop stop(2);
  stop.add(10, 3.0);
  stop.add(20, 3.0);
  EXPECT_FALSE(stop.is_due());
  stop.add(30, 2.5);
  stop.add(40, 2.6);
  EXPECT_FALSE(stop.is_due()) << "a lower loss starts the count anew";
  stop.add(50, std::numeric_limits<double>::quiet_NaN());

  EXPECT_TRUE(stop.is_due());
  EXPECT_EQ(stop.reason(),
            "early stop: 2 validations without a lower validation loss (train.patience = 2); the "
            "lowest is 2.5 at step 30");
}

TEST(EarlyStop, ContinuesFromTheValuesOfACheckpoint) {
  EarlyStop stop(3);
  stop.add(10, 3.0);
  stop.add(20, 3.5);
  RunValues values;
  stop.put_state(values);
  EarlyStop resumed(3);
  resumed.restore(RunValues::from_values(values.to_values()));

  resumed.add(30, 3.25);
  EXPECT_FALSE(resumed.is_due());
  resumed.add(40, 3.25);

  EXPECT_TRUE(resumed.is_due());
  EXPECT_NE(resumed.reason().find("the lowest is 3 at step 10"), std::string::npos);
}

TEST(EarlyStop, RoundsTheLowestLossInItsReason) {
  EarlyStop stop(1);
  stop.add(4, 45.235375201512895);
  stop.add(8, 46);
  EXPECT_TRUE(stop.reason().ends_with("; the lowest is 45.2354 at step 4")) << stop.reason();
}

TEST(EarlyStop, NeverEndsARunWithoutPatience) {
  EarlyStop stop(0);
  for (int step = 1; step < 9; ++step) stop.add(step, 1.0);
  EXPECT_FALSE(stop.is_due());
  EarlyStop unvalidated(1);
  RunValues values;
  unvalidated.put_state(values);
  EXPECT_FALSE(values.early_stop_without_lower) << "checkpoints of other runs are unchanged";
}

}  // namespace
}  // namespace trireme::train
