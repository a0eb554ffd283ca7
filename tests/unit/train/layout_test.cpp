#include "train/config/layout.hpp"

#include <gtest/gtest.h>

#include "train/verify/verify_layout.hpp"

namespace trireme::train {
namespace {

struct Given {
  std::int64_t tp = 1;
  std::int64_t zero = 0;
  std::int64_t zero_shard = 0;
  bool sequence_parallel = false;
  int ranks = 8;
  std::int64_t length = 64;
  std::int64_t local_steps = 1;
  bool hierarchical = false;
  std::int64_t tp_chunks = 1;
  std::int64_t cp = 1;
  const char* cp_form = "ring";
  double attention_dropout = 0;
  bool reproducible = false;
  std::optional<std::int64_t> kept_local_steps = {};
  std::int64_t num_experts = 0;
  std::int64_t ep = 1;
  std::int64_t etp = 0;
  std::int64_t pp = 1;
  const char* schedule = "1f1b";
  std::int64_t zero_persist = 0;
  bool tied = true;
};

std::string refusal(const Given& given) {
  model::ModelConfig model = model::model_preset("tiny");
  model.attention_dropout = given.attention_dropout;
  model.tie_embeddings = given.tied;
  model.moe.num_experts = given.num_experts;
  model::resolve(model, 100);
  parallel::ParallelConfig config;
  config.tp = given.tp;
  config.zero = given.zero;
  config.zero_shard = given.zero_shard;
  config.sequence_parallel = given.sequence_parallel;
  config.local_steps = given.local_steps;
  config.hierarchical = given.hierarchical;
  config.tp_chunks = given.tp_chunks;
  config.cp = given.cp;
  config.cp_form = given.cp_form;
  config.reproducible = given.reproducible;
  config.ep = given.ep;
  config.etp = given.etp;
  config.pp = given.pp;
  config.schedule = given.schedule;
  config.zero_persist = given.zero_persist;
  Problems problems;
  check_layout(config, {model, {given.length}, given.ranks, given.kept_local_steps}, problems);
  try {
    problems.throw_if_any();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

void expect_refused(const Given& given, const std::vector<std::string>& words) {
  const std::string text = refusal(given);
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << "'" << word << "' in '" << text << "'";
}

TEST(Layout, ValidLayoutsAreAccepted) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.tp = 4, .sequence_parallel = true}), "");
  EXPECT_EQ(refusal({.tp = 3, .ranks = 6}), "") << "heads need not divide evenly";
  EXPECT_EQ(refusal({.zero = 3, .zero_shard = 4}), "");
  EXPECT_EQ(refusal({.tp = 2, .local_steps = 4}), "");
  EXPECT_EQ(refusal({.hierarchical = true}), "");
  EXPECT_EQ(refusal({.tp = 2, .sequence_parallel = true, .tp_chunks = 32}), "");
}

TEST(Layout, AStageBorderCarriesNoEarlierHiddenStates) {
  const auto problem = [](void (*change)(model::ModelConfig&)) {
    model::ModelConfig model = model::model_preset("tiny");
    change(model);
    model::resolve(model, 100);
    parallel::ParallelConfig config;
    config.pp = 2;
    Problems problems;
    check_layout(config, {model, {64}, 2}, problems);
    try {
      problems.throw_if_any();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };

  for (const auto& [key, change] :
       {std::pair<const char*, void (*)(model::ModelConfig&)>{
            "model.residual_scalars", [](model::ModelConfig& c) { c.residual_scalars = true; }},
        {"model.skips", [](model::ModelConfig& c) { c.skips = true; }},
        {"model.backout", [](model::ModelConfig& c) { c.backout = true; }},
        {"model.value_residual", [](model::ModelConfig& c) { c.value_residual = true; }}}) {
    EXPECT_NE(problem(change).find(formatted("must be 1 with {}: a stage sends only", key)),
              std::string::npos)
        << problem(change);
  }
  EXPECT_NE(problem([](model::ModelConfig& c) { c.smear = true; }).find("model.tie_embeddings"),
            std::string::npos);
  EXPECT_EQ(problem([](model::ModelConfig& c) {
              c.smear = true;
              c.tie_embeddings = false;
              c.value_embeddings = "alternate";
            }),
            "");
}

TEST(Layout, EveryReasonIsGivenAndTheNearestThatWorks) {
  expect_refused({.tp = 8}, {"parallel.tp = 8", "model.num_heads = 4", "--parallel.tp 4"});
  expect_refused({.tp = 3}, {"parallel.tp * cp * pp = 3", "8 ranks", "--parallel.tp 4"});
  expect_refused({.tp = 4, .sequence_parallel = true, .length = 62},
                 {"parallel.tp = 4", "62", "sequence_parallel", "--parallel.tp 2"});
  expect_refused({.zero = 2, .zero_shard = 3},
                 {"parallel.zero_shard = 3", "dp x cp = 8", "--parallel.zero_shard"});
  expect_refused({.tp = 5, .sequence_parallel = true, .ranks = 8},
                 {"num_heads", "8 ranks", "sequence length 64", "--parallel.tp 4"});
}

TEST(Layout, MoreChunksThanTokensAreRefused) {
  expect_refused({.tp = 2, .tp_chunks = 65},
                 {"parallel.tp_chunks = 65", "64 tokens", "--parallel.tp_chunks 64"});
  expect_refused({.tp = 4, .sequence_parallel = true, .tp_chunks = 17},
                 {"parallel.tp_chunks = 17", "16 tokens", "--parallel.tp_chunks 16"});
  expect_refused(
      {.tp = 3, .sequence_parallel = true, .tp_chunks = 99},
      {"sequence length", "8 ranks", "21 tokens", "--parallel.tp 4 --parallel.tp_chunks 16"});
}

TEST(Layout, TokensOfExpertsAreRoutedAtOnce) {
  expect_refused({.tp = 2, .tp_chunks = 2, .num_experts = 4},
                 {"parallel.tp_chunks = 2", "experts", "--parallel.tp_chunks 1"});
}

TEST(Layout, GridsOfExpertsThatCannotBeAreRefused) {
  EXPECT_EQ(refusal({.tp = 2, .num_experts = 8, .ep = 4}), "");
  EXPECT_EQ(refusal({.tp = 2, .num_experts = 8, .ep = 8, .etp = 1}), "");
  expect_refused({.ep = 2},
                 {"parallel.ep = 2, must be 1 with model.num_experts = 0", "--parallel.ep 1"});
  expect_refused(
      {.tp = 2, .etp = 2},
      {"parallel.etp = 2, must be 0 or 1 with model.num_experts = 0", "--parallel.etp 0"});
  expect_refused({.num_experts = 12, .ep = 8},
                 {"must divide model.num_experts = 12", "--parallel.ep 4"});
  expect_refused({.tp = 2, .num_experts = 8, .ep = 8},
                 {"parallel.ep = 8, must divide tp x cp x dp / etp = 4", "--parallel.ep 4"});
  expect_refused({.reproducible = true, .num_experts = 8, .ep = 2},
                 {"parallel.reproducible = true", "--parallel.reproducible false"});
  expect_refused({.local_steps = 4, .num_experts = 8, .ep = 2},
                 {"parallel.local_steps = 4", "--parallel.local_steps 1"});
  expect_refused({.reproducible = true, .kept_local_steps = 4, .num_experts = 8, .ep = 2},
                 {"parallel.reproducible = true"});
  EXPECT_EQ(refusal({.zero = 1, .zero_shard = 2, .num_experts = 8, .ep = 4}), "");
  expect_refused({.zero = 1, .zero_shard = 2, .ranks = 12, .num_experts = 6, .ep = 3},
                 {"parallel.zero_shard = 2", "one must divide the other"});
}

TEST(Layout, SmallParametersOfSeveralStagesAreNotReproducible) {
  Given given{
      .zero = 3, .ranks = 4, .reproducible = true, .pp = 2, .zero_persist = 100, .tied = false};
  EXPECT_EQ(refusal(given), "");
  given.schedule = "zb-v";
  expect_refused(given, {"parallel.reproducible = true", "parallel.zero_persist = 100"});
  given.zero_persist = 0;
  EXPECT_EQ(refusal(given), "");
}

TEST(SmallModel, WithExpertsHasFewAndALayerOfThem) {
  model::ModelConfig model = model::model_preset("tiny");
  model.num_layers = 40;
  model.moe.num_experts = 4096;
  model.moe.first_dense_layers = 39;
  model::resolve(model, 100);
  for (const std::int64_t pp : {1, 2}) {
    parallel::ParallelConfig parallel;
    parallel.pp = pp;
    const model::ModelConfig small = small_model_like(model, parallel);
    EXPECT_LE(small.moe.num_experts, 16);
    parallel.ep = 32;
    EXPECT_EQ(small_model_like(model, parallel).moe.num_experts, 32) << "distributed evenly";
    parallel.ep = 7;
    EXPECT_NE(small_model_like(model, parallel).moe.num_experts % 7, 0) << "as the model's";
    EXPECT_EQ(small.moe.layers_with_experts(small.num_layers), 1);
  }
  model.moe.num_experts_per_tok = 40;
  EXPECT_EQ(small_model_like(model, {}).moe.num_experts, 40);
}

TEST(Layout, TheNearestLeavesAloneWhatIsNotInItsWay) {
  EXPECT_TRUE(refusal({.tp = 2, .zero_shard = 3, .ranks = 2, .tp_chunks = 65})
                  .ends_with("the nearest layout that works: --parallel.tp_chunks 64"))
      << refusal({.tp = 2, .zero_shard = 3, .ranks = 2, .tp_chunks = 65});
}

TEST(Layout, FormsOfDataParallelismThatExcludeOneAnotherAreRefused) {
  expect_refused({.zero = 1, .local_steps = 4},
                 {"parallel.local_steps = 4", "parallel.zero = 1", "--parallel.local_steps 1"});
  expect_refused(
      {.tp = 8, .zero = 3, .local_steps = 4, .hierarchical = true},
      {"num_heads", "parallel.local_steps = 4", "parallel.hierarchical = true", "zero_shard",
       "--parallel.tp 4 --parallel.local_steps 1 --parallel.hierarchical false"});
  expect_refused({.local_steps = 2, .hierarchical = true},
                 {"parallel.hierarchical = true", "parallel.local_steps = 2",
                  "--parallel.hierarchical false"});
}

TEST(Layout, AllContradictionsAreNamedAndNoneIsInTheNearest) {
  expect_refused({.local_steps = 4, .hierarchical = true, .reproducible = true},
                 {"parallel.reproducible = true, must be false with parallel.hierarchical",
                  "parallel.reproducible = true, must be false with parallel.local_steps = 4",
                  "parallel.hierarchical = true", "--parallel.local_steps 1",
                  "--parallel.hierarchical false"});
  expect_refused({.tp = 3, .ranks = 4, .cp = 2},
                 {"parallel.tp * cp * pp = 6", "4 ranks", "--parallel.tp 2"});
  expect_refused(
      {.tp = 3, .zero = 1, .zero_shard = 5, .ranks = 1 << 14, .local_steps = 2, .cp = 5},
      {"parallel.tp * cp * pp = 15", "parallel.local_steps = 2", "--parallel.zero_shard"});
}

TEST(Layout, AResumedRunIsOfferedItsOwnLocalSteps) {
  expect_refused({.zero = 1, .local_steps = 4, .kept_local_steps = 4}, {"--parallel.zero 0"});
  expect_refused({.zero = 1, .local_steps = 4, .kept_local_steps = 1},
                 {"--parallel.local_steps 1"});
  expect_refused({.local_steps = 4, .reproducible = true, .kept_local_steps = 4},
                 {"--parallel.reproducible false"});
}

TEST(Layout, AttentionDropoutIsRefusedWithAReasonOfEveryForm) {
  for (const char* form : {"ring", "all_gather", "ulysses"})
    expect_refused({.cp = 2, .cp_form = form, .attention_dropout = 0.1},
                   {"model.attention_dropout = 0.1", form, "--parallel.cp 1"});
}

TEST(Layout, KeysThatChangeNothingAreNamed) {
  parallel::ParallelConfig config;
  EXPECT_EQ(keys_without_effect(config), "");
  config.zero_persist = 64;
  config.zero_shard = 2;
  config.sequence_parallel = true;
  config.tp_chunks = 4;
  config.cp_form = "ulysses";
  config.pp_regather = "update";
  EXPECT_EQ(
      keys_without_effect(config),
      "without effect here: parallel.sequence_parallel = true (tp is 1), parallel.tp_chunks "
      "= 4 (tp is 1), parallel.cp_form = ulysses (cp is 1), parallel.zero_shard = 2 (zero is "
      "0), parallel.pp_regather = update (pp is 1), parallel.zero_persist = 64 (zero is not 3)");
  config.zero = 3;
  config.tp = 2;
  config.cp = 2;
  config.pp = 2;
  EXPECT_EQ(keys_without_effect(config), "");
}

}  // namespace
}  // namespace trireme::train
