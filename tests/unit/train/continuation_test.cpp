#include "train/state/continuation.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"
#include "core/hash/xxh3.hpp"
#include "support/optim_keys.hpp"
#include "train/start/run_keys.hpp"
#include "train/state/fingerprint.hpp"
#include "train/state/resume.hpp"

namespace trireme::train {
namespace {

TEST(FingerprintTest, SaysWhatEqualityToExpect) {
  const Fingerprint now{{"binary", "aa"}, {"threads", "2"}, {"layout", "ranks 2"}};
  Fingerprint before = now;
  EXPECT_EQ(fingerprint_changes(before, now), "");

  before["binary"] = "bb";
  before["threads"] = "1";
  EXPECT_EQ(fingerprint_changes(before, now), "binary, threads 2 (was 1)");
  before.erase("layout");
  EXPECT_EQ(fingerprint_changes(before, now), std::nullopt);
}

/// The messages about a run that stopped at step 3 of 10 and resumes with some keys changed.
class ContinuationTest : public ::testing::Test {
 protected:
  ContinuationTest() : keys_(make_run_keys(config_)) {
    config_.train.steps = 10;
    config_.optim.warmup_steps = 1;
    values_.config = config_texts(*keys_);
    values_.fingerprint = fingerprint_;
    values_.plan_hash = "plan";
  }

  [[nodiscard]] std::string describe(const std::string& plan_hash = "plan") const {
    return describe_continuation({values_, config_, *keys_, fingerprint_, plan_hash, 3});
  }

  void expect(const std::vector<std::string>& words) const {
    const std::string text = describe();
    EXPECT_EQ(text.find("bit for bit"), std::string::npos) << text;
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << "no '" << word << "' in: " << text;
  }

  RunConfig config_;
  std::unique_ptr<config::ConfigSet> keys_;
  Fingerprint fingerprint_{{"binary", "aa"}, {"layout", "ranks 2"}};
  RunValues values_;
};

TEST_F(ContinuationTest, IsExactWhereOnlyOutputsDiffer) {
  const std::string exact =
      "exact: losses and weights continue bit for bit as without the interruption";
  EXPECT_EQ(describe(), exact);
  config_.train.log_every = 1;
  config_.train.eval_every = 3;
  config_.train.max_skipped_steps = 1;
  config_.train.hash_weights_every = 2;
  config_.checkpoint.every = 1;
  config_.data.path = "the same set, moved";
  EXPECT_EQ(describe(), exact);
}

TEST_F(ContinuationTest, AnotherEndMovesTheScheduleOfTheWeightDecay) {
  config_.optim.name = "muon";
  config_.optim.schedule = "constant";
  auto& decay = optim_key<std::string>(config_.optim, "decay_schedule");
  decay = "linear";
  values_.config = config_texts(*keys_);
  config_.train.steps = 12;
  expect({"another weight decay", "train.steps = 12 (was 10)", "linear"});
  decay = "constant";
  values_.config["optim.decay_schedule"] = "constant";
  EXPECT_EQ(describe().find("exact: "), 0U) << describe();
  decay = "linear";
  config_.optim.name = "adamw";  // does not have the key
  values_.config["optim.decay_schedule"] = "linear";
  values_.config["optim.name"] = "adamw";
  EXPECT_EQ(describe().find("exact: "), 0U) << describe();
}

TEST_F(ContinuationTest, AnotherEndOfTheScheduleMovesTheLearningRate) {
  config_.train.steps = 20;
  expect({"the state is exact", "from step 4 on the learning rate differs",
          "train.steps = 20 (was 10)", "cosine", "at step 4 "});
  config_.optim.warmup_steps = 6;
  values_.config["optim.warmup_steps"] = "6";
  expect({"from step 7 on"});
  config_.optim.schedule = "constant";
  values_.config["optim.schedule"] = "constant";
  EXPECT_EQ(describe().find("exact: "), 0U) << describe();
}

TEST_F(ContinuationTest, AnotherOrderOfSumsIsWithinRounding) {
  config_.parallel.bucket_mb = 1;
  expect({"within rounding: changed parallel.bucket_mb 1 (was -1)"});
  fingerprint_["layout"] = "ranks 3";
  config_.train.steps = 20;
  expect({"within rounding: changed layout ranks 3 (was ranks 2), parallel.bucket_mb",
          "; from step 4 on"});
  values_.fingerprint.erase("binary");
  expect({"does not say", "from step 4 on"});
}

TEST_F(ContinuationTest, OtherGathersAndCheckpointingAreExact) {
  config_.parallel.recompute = "full";
  config_.parallel.zero_prefetch = 3;
  EXPECT_EQ(describe().find("exact: "), 0U) << describe();
}

TEST_F(ContinuationTest, OtherMicroBatchesAreAnotherAuxiliaryLossOfExperts) {
  fingerprint_["layout"] = "ranks 2, micro_batch 2";
  config_.train.micro_batch = 2;
  expect({"within rounding: changed layout ranks 2, micro_batch 2"});
  model::MoeConfig& moe = config_.model.moe;
  moe.num_experts = 4;
  moe.router_aux_loss = "micro_batch";
  values_.config = config_texts(*keys_);
  values_.config["train.micro_batch"] = "4";
  expect({"a different training: the auxiliary loss is a mean per micro-batch", "changed layout"});
  moe.router_aux_loss = "sequence";
  values_.config = config_texts(*keys_);
  values_.config["train.micro_batch"] = "4";
  expect({"within rounding"});
}

TEST_F(ContinuationTest, LaterPhasesAndAnotherConfigurationAreNamed) {
  EXPECT_NE(describe("another plan").find("later phases of data.path have changed"),
            std::string::npos);
  optim_key<double>(config_.optim, "beta1") = 0.5;
  expect({"under another configuration"});
}

TEST(FingerprintTest, IsTheSameOnAllRanksAndTellsWhatRuns) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    at::set_num_threads(1);
    const Fingerprint taken = take_fingerprint(world, at::kCPU, "ranks 2, micro_batch 4");
    EXPECT_EQ(taken.at("layout"), "ranks 2, micro_batch 4");
    EXPECT_EQ(taken.at("threads"), "1");
    EXPECT_EQ(taken.at("binary"), hash_file("/proc/self/exe"));
    EXPECT_EQ(taken.at("libraries").size(), 32U);
    EXPECT_TRUE(taken.at("torch").starts_with("2."));
    EXPECT_FALSE(taken.at("isa").empty());
    EXPECT_FALSE(taken.at("device").empty());
  });
}

}  // namespace
}  // namespace trireme::train
