/// Tests constants that are fitted to the output of bench step.

#include "train/planner/calibration.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "tests/unit/data/small_set.hpp"
#include "tests/unit/train/planner/published.hpp"
#include "train/planner/config_json.hpp"

namespace trireme::planner {
namespace {

/// Returns the output of the command for a step time that `constants` predict.
Json row(const parallel::ParallelConfig& parallel, int ranks, const TimeConstants& constants) {
  const model::ModelConfig model = model_of("minimind-2-small", 6400);
  const train::UpdateShape shape{2, 512, 4};
  const train::UpdateFacts facts = train::update_facts(
      model, optim::OptimConfig{}, device::precision_dtypes("fp32"), parallel, ranks, shape, {});
  StepPredictor predictor({device_kind("cpu"), 1, ranks}, constants);
  const StepTime time = predictor.predict(facts);
  return {{"ranks", ranks},
          {"ranks_per_node", ranks},
          {"cores", 2},
          {"device", "cpu"},
          {"model", config_json(model)},
          {"parallel", config_json(parallel)},
          {"optimizer", "adamw"},
          {"precision", "fp32"},
          {"micro_batch", 2},
          {"seq_len", 512},
          {"micro_steps", 4},
          {"step_time_s", time.step_s},
          {"comm_exposed_s", time.spent.tp + time.spent.cp + time.spent.dp}};
}

class CalibrationFile : public ::testing::Test {
 protected:
  std::vector<BenchRow> read(const std::string& text, const char* kind = "cpu") {
    write_file_atomic(directory_.path() / "bench.json", text);
    return read_bench_rows(directory_.path() / "bench.json", device_kind(kind));
  }

  trireme::testing::TestDirectory directory_{"calibration"};
};

TEST_F(CalibrationFile, OneRowGivesEfficiencyAndNetwork) {
  TimeConstants truth;
  truth.efficiency = 0.31;
  truth.network_factor = 2.5;

  const Calibration found = calibrate(read(row({}, 2, truth).dump(2)));

  EXPECT_NEAR(found.constants.efficiency, truth.efficiency, 0.01 * truth.efficiency);
  EXPECT_NEAR(found.constants.network_factor, truth.network_factor, 0.01 * truth.network_factor);
  EXPECT_LT(rms(found.errors), 1e-3);
}

TEST_F(CalibrationFile, HasRowsOneALineOrOneAfterAnother) {
  const std::string one = row({}, 2, {}).dump();

  EXPECT_EQ(read(one + "\n" + one + "\n").size(), 2U);
  EXPECT_EQ(read(row({}, 2, {}).dump(2) + row({}, 2, {}).dump(2)).size(), 2U);
}

TEST_F(CalibrationFile, FromAnotherDeviceIsRefused) {
  Json of_gpu = row({}, 2, {});
  of_gpu["device"] = "cuda";

  EXPECT_EQ(read(of_gpu.dump(), "h100").size(), 1U);
  for (const auto& [text, kind] :
       {std::pair{row({}, 2, {}).dump(), "h100"}, {of_gpu.dump(), "cpu"}}) {
    try {
      read(text, kind);
      ADD_FAILURE() << kind;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("row 1: device = "), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(kind), std::string::npos);
    }
  }
}

TEST_F(CalibrationFile, IsRefusedWithRowAndKeyIfItIsInvalid) {
  const auto message = [&](const std::string& text) -> std::string {
    try {
      read(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Json lacking = row({}, 2, {});
  lacking.erase("step_time_s");

  EXPECT_NE(message("").find("is empty"), std::string::npos);
  EXPECT_NE(message("nonsense").find("row 1"), std::string::npos);
  EXPECT_NE(message(R"({"a": 1})").find("no object 'model'"), std::string::npos);
  EXPECT_NE(message(lacking.dump()).find("step_time_s"), std::string::npos);
  const auto with = [&](const char* key, const Json& value, const char* section = nullptr) {
    Json changed = row({}, 2, {});
    (section != nullptr ? changed[section] : changed)[key] = value;
    return message(changed.dump());
  };
  for (const auto& [key, value] : {std::pair<const char*, Json>{"micro_batch", -1},
                                   {"micro_batch", 1'000'000'000'000},
                                   {"seq_len", 0},
                                   {"micro_steps", 0},
                                   {"ranks", 4294967297},
                                   {"ranks_per_node", 0},
                                   {"cores", 0},
                                   {"step_time_s", 1e300},
                                   {"comm_exposed_s", -1},
                                   {"optimizer", "foo"}}) {
    const std::string text = with(key, value);
    EXPECT_NE(text.find("row 1"), std::string::npos) << key << text;
    EXPECT_NE(text.find(std::string(key) == "optimizer" ? "foo" : key), std::string::npos) << text;
  }
  EXPECT_NE(with("num_heads", -1, "model").find("num_heads = -1"), std::string::npos);
  EXPECT_NE(with("pp", 64, "parallel").find("row 1"), std::string::npos);
  EXPECT_NE(with("zero", 7, "parallel").find("zero = 7"), std::string::npos);
  EXPECT_THROW(read_bench_rows(directory_.path() / "absent", device_kind("cpu")), Error);
}

}  // namespace
}  // namespace trireme::planner
