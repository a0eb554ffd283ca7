#include "data/batch_phases.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace trireme::data {
namespace {

TEST(BatchPhases, EachUpdateHasTheSizeOfItsPhase) {
  const BatchPhases phases("0:4, 3:8, 5:2");

  std::vector<std::int64_t> sizes;
  std::int64_t sum = 0;
  for (std::int64_t step = 1; step <= 7; ++step) {
    sizes.push_back(phases.global_batch(step));
    sum += sizes.back();
    EXPECT_EQ(phases.samples(0, step), sum) << step;
    EXPECT_EQ(phases.updates(0, sum), step);
    EXPECT_EQ(phases.updates(0, sum + 1), step + 1) << "an incomplete update counts";
  }

  EXPECT_EQ(sizes, (std::vector<std::int64_t>{4, 4, 4, 8, 8, 2, 2}));
  EXPECT_EQ(phases.largest(), 8);
  EXPECT_EQ(phases.updates(0, 0), 0);
  EXPECT_EQ(phases.updates(4, 9), 2) << "the second update of 8, then one of 2";
}

TEST(BatchPhases, ARunThatResumesSeesTheRest) {
  const BatchPhases phases("0:4,3:8,5:2");
  for (std::int64_t done = 0; done < 8; ++done) {
    const BatchPhases rest = phases.after(done);
    for (std::int64_t step = 1; step < 9; ++step)
      EXPECT_EQ(rest.global_batch(step), phases.global_batch(done + step)) << done << " " << step;
  }
}

TEST(BatchPhases, InvalidListsAreRefused) {
  for (const char* text : {"", "32", "1:32", "0:32,0:64", "0:32,9:0", "0:2.5", "0:-4", "0:x"})
    EXPECT_THROW(BatchPhases{std::string(text)}, Error) << text;
}

}  // namespace
}  // namespace trireme::data
