#include "optim/loss_scaler.hpp"

#include <gtest/gtest.h>

namespace trireme::optim {
namespace {

TEST(LossScaler, HalvesOnOverflowAndDoublesAfterManyGoodSteps) {
  LossScaler scaler(true);
  const double start = scaler.scale();

  scaler.update(true);
  EXPECT_EQ(scaler.scale(), start / 2);
  for (std::int64_t i = 0; i < LossScaler::kGrowthInterval - 1; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), start / 2);
  scaler.update(false);

  EXPECT_EQ(scaler.scale(), start);
  EXPECT_EQ(scaler.good_steps(), 0);
}

TEST(LossScaler, AnOverflowStartsTheCountAnew) {
  LossScaler scaler(true);
  scaler.restore(8.0, LossScaler::kGrowthInterval - 1);

  scaler.update(true);
  scaler.update(false);

  EXPECT_EQ(scaler.scale(), 4.0);
  EXPECT_EQ(scaler.good_steps(), 1);
}

TEST(LossScaler, NeverFallsBelowOneAndIsFixedForOtherPrecisions) {
  LossScaler scaler(true);
  for (int i = 0; i < 100; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.0);

  LossScaler fixed(false);
  fixed.update(true);
  EXPECT_EQ(fixed.scale(), 1.0);
}

}  // namespace
}  // namespace trireme::optim
