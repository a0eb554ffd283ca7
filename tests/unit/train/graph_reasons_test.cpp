#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/self/self_communicator.hpp"
#include "train/start/run_keys.hpp"
#include "train/state/continuation.hpp"
#include "train/state/resume.hpp"
#include "train/step/captured_passes.hpp"
#include "train/step/graph_checks.hpp"
#include "unit/train/captured_trial.hpp"

namespace trireme::train {
namespace {

std::string reason_for(const TrialShape& shape) {
  comm::SelfCommunicator world;
  TrialModel trial(world, shape);
  return reason_against_captured_passes(trial.model, trial.objective, trial.mesh);
}

TEST(ReasonsAgainstGraphs, AReasonNamesWhatCannotBeCaptured) {
  const auto expect_reason = [](const std::string& word, const auto& change) {
    TrialShape shape = graph_trial_shape(at::kFloat);
    change(shape);
    const std::string reason = reason_for(shape);
    EXPECT_NE(reason.find(word), std::string::npos) << word << ": " << reason;
    shape.graphs = kGraphs;
    comm::SelfCommunicator world;
    const TrialModel trial(world, shape);
    EXPECT_EQ(trial.step.captured_passes() == nullptr, !reason.empty());
  };
  EXPECT_EQ(reason_for(graph_trial_shape(at::kFloat)), "");
  expect_reason("dropout", [](TrialShape& shape) { shape.model.dropout = 0.1; });
  expect_reason("dropout", [](TrialShape& shape) { shape.model.attention_dropout = 0.1; });
  expect_reason("dropout", [](TrialShape& shape) {
    shape.lora.rank = 2;
    shape.lora.dropout = 0.1;
  });
  expect_reason("expert", [](TrialShape& shape) {
    shape.model.moe.num_experts = 4;
    shape.model.moe.moe_intermediate_size = 8;
  });
  expect_reason("fp8", [](TrialShape& shape) { shape.fp8 = model::Fp8Mode::tensorwise; });
  expect_reason("mask", [](TrialShape& shape) { shape.model.attention_softcap = 10; });
  expect_reason("mask", [](TrialShape& shape) { shape.path = ops::Path::plain; });
  expect_reason("addresses", [](TrialShape& shape) { shape.parallel.reproducible = true; });
  expect_reason("", [](TrialShape& shape) { shape.lora.rank = 2; });

  TrialShape on_a_cpu = graph_trial_shape(at::kFloat);
  for (const char* mode : {"auto", "true", "false"}) {
    on_a_cpu.graphs = {.mode = mode};
    comm::SelfCommunicator world;
    const TrialModel trial(world, on_a_cpu);
    EXPECT_EQ(trial.step.captured_passes(), nullptr) << mode;
  }
}

TEST(ReasonsAgainstGraphs, ALossOverRowsWithTargetsIsNotCaptured) {
  comm::SelfCommunicator world;
  TrialModel trial(world, graph_trial_shape(at::kFloat));
  const objective::CrossEntropy loss(trial.registry, trial.model.head_weight(), ops::Path::fast, {},
                                     objective::LossRows::targets);
  EXPECT_NE(reason_against_captured_passes(trial.model, loss, trial.mesh), "");
}

TEST(PassesKey, RoundsDocumentsAndTheLongestOneToAPowerOfTwo) {
  parallel::Microbatch batch;
  batch.tokens = at::zeros({2, 1000}, at::kLong);
  const auto key = [&](std::vector<std::vector<std::int64_t>> bounds) {
    batch.bounds = std::move(bounds);
    return passes_key(batch, 7);
  };
  const PassesKey whole{.rows = 2, .length = 1000, .documents = 0, .longest = 1000, .window = 7};
  EXPECT_EQ(key({}), whole);
  EXPECT_EQ(key({{0, 1000}, {0, 1000}}), whole);
  const PassesKey three = key({{0, 600, 1000}, {0, 1000}});
  EXPECT_EQ(three.documents, 4);
  EXPECT_EQ(three.longest, 1000);
  EXPECT_EQ(key({{0, 500, 1000}, {0, 700, 1000}}), three);
  const PassesKey five = key({{0, 300, 600, 1000}, {0, 500, 1000}});
  EXPECT_EQ(five.documents, 8);
  EXPECT_EQ(five.longest, 512);
  EXPECT_EQ(key({{0, 513, 600, 1000}, {0, 500, 1000}}).longest, 1000);
  std::vector<std::int64_t> tokens(1001);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(key({tokens, tokens}).longest, 128);
  EXPECT_EQ(key({tokens, tokens}).documents, 2048);
  batch.target_weights = at::ones({2, 1000});
  EXPECT_NE(key({}), whole);
}

TEST(GraphMemory, AutoUsesATenthOfTheDeviceAndOtherPassesNeedAsMuchAsGraphs) {
  const auto reason = [](const GraphMemory& memory, const std::string& mode) -> std::string {
    try {
      check_graph_memory(memory, mode);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::resource);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(reason({.graphs = 9, .left = 50, .total = 100}, "auto"), "");
  EXPECT_NE(reason({.graphs = 11, .left = 50, .total = 100}, "auto").find("a tenth"),
            std::string::npos);
  EXPECT_EQ(reason({.graphs = 11, .left = 50, .total = 100}, "true"), "");
  for (const char* mode : {"auto", "true"}) {
    EXPECT_NE(reason({.graphs = 9, .left = 8, .total = 100}, mode).find("too little"),
              std::string::npos);
  }
}

TEST(GraphKey, TakesAutoTrueAndFalse) {
  RunConfig config;
  const auto finds_problem = [&config] {
    Problems problems;
    check(config, problems);
    try {
      problems.throw_if_any();
    } catch (const Error& error) {
      return std::string(error.what()).find("train.cuda_graph = yes") != std::string::npos;
    }
    return false;
  };
  for (const char* mode : {"auto", "true", "false"}) {
    config.train.cuda_graph = mode;
    EXPECT_FALSE(finds_problem()) << mode;
  }
  config.train.cuda_graph = "yes";
  EXPECT_TRUE(finds_problem());
}

TEST(GraphKey, AResumedRunMayChangeItAndContinuesWithinRounding) {
  RunConfig config;
  const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config);
  const Fingerprint fingerprint{{"binary", "aa"}};
  RunValues values;
  values.config = config_texts(*keys);
  values.fingerprint = fingerprint;

  config.train.cuda_graph = "false";

  EXPECT_EQ(describe_continuation({values, config, *keys, fingerprint, "", 0}),
            "the state is exact, losses continue within rounding: changed train.cuda_graph false "
            "(was auto)");
}

std::string continuation_of(const RunConfig& now, const config::ConfigSet& keys,
                            const config::ConfigSet& before, bool is_on_gpu) {
  const Fingerprint fingerprint{{"binary", "aa"}};
  RunValues values;
  values.config = config_texts(before);
  values.fingerprint = fingerprint;
  return describe_continuation({values, now, keys, fingerprint, "", 0, is_on_gpu});
}

TEST(DeterministicKey, ARunOnAGpuWithoutItContinuesWithinRounding) {
  RunConfig before;
  const std::unique_ptr<config::ConfigSet> keys_before = make_run_keys(before);
  RunConfig now;
  const std::unique_ptr<config::ConfigSet> keys = make_run_keys(now);
  const auto text = [&](bool is_on_gpu) {
    return continuation_of(now, *keys, *keys_before, is_on_gpu);
  };
  const std::string exact =
      "exact: losses and weights continue bit for bit as without the interruption";
  EXPECT_EQ(text(/*is_on_gpu=*/true), exact);

  now.train.deterministic = false;

  EXPECT_EQ(text(/*is_on_gpu=*/true),
            "the state is exact, losses continue within rounding: changed train.deterministic "
            "false (was true)");
  EXPECT_EQ(text(/*is_on_gpu=*/false), exact);
  before.train.deterministic = false;
  EXPECT_EQ(text(/*is_on_gpu=*/true),
            "the state is exact, losses continue within rounding: train.deterministic is false");
  EXPECT_EQ(text(/*is_on_gpu=*/false), exact);
}

TEST(DeterministicKey, IsNeededForReproducibleRuns) {
  RunConfig config;
  const auto problem = [&config] {
    Problems problems;
    check(config, problems);
    try {
      problems.throw_if_any();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string text = "train.deterministic = false, must be true with parallel.reproducible";
  config.train.deterministic = false;
  EXPECT_EQ(problem().find(text), std::string::npos);
  config.parallel.reproducible = true;
  EXPECT_NE(problem().find(text), std::string::npos) << problem();
  config.train.deterministic = true;
  EXPECT_EQ(problem().find(text), std::string::npos);
}

}  // namespace
}  // namespace trireme::train
