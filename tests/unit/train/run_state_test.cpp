#include "train/run_state.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace trireme {
namespace {

using Values = std::map<std::string, std::string>;

const Values kGood{{"step", "20"},
                   {"update", "19"},
                   {"data.next_sample", "240"},
                   {"tokens", "7680"},
                   {"scaler.scale", "1024"},
                   {"scaler.good_steps", "3"}};

TEST(RunState, ProgressIsLoadedAsItWasSaved) {
  LossScaler scaler(/*dynamic=*/true);
  const Progress progress = load_progress(kGood, 20, scaler);
  EXPECT_EQ(progress.step, 20);
  EXPECT_EQ(progress.update, 19);
  EXPECT_EQ(progress.next_sample, 240);
  EXPECT_EQ(progress.tokens, 7680);
  Values again;
  save_progress(again, progress, scaler);
  EXPECT_EQ(again, kGood);
}

TEST(RunState, NumbersWithoutSenseAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> wrong{{"step", "21"},
                                                               {"step", "0"},
                                                               {"step", "-5"},
                                                               {"step", "9223372036854775807"},
                                                               {"update", "-20"},
                                                               {"update", "21"},
                                                               {"data.next_sample", "-1"},
                                                               {"tokens", "-3"},
                                                               {"tokens", "7e3"},
                                                               {"scaler.scale", "0"},
                                                               {"scaler.scale", "inf"},
                                                               {"scaler.good_steps", "-1"}};
  for (const auto& [key, value] : wrong) {
    Values values = kGood;
    values[key] = value;
    LossScaler scaler(/*dynamic=*/true);
    try {
      (void)load_progress(values, 20, scaler);
      ADD_FAILURE() << key << " = " << value << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace trireme
