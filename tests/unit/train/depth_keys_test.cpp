#include "train/start/depth_keys.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "support/optim_keys.hpp"
#include "train/start/run_keys.hpp"

namespace trireme::train {
namespace {

using Given = std::vector<std::pair<const char*, std::string>>;

std::unique_ptr<config::ConfigSet> nanochat_keys(RunConfig& config, const Given& given,
                                                 const RunStart& start = {}) {
  std::unique_ptr<config::ConfigSet> keys = make_run_keys(config);
  keys->set("model.preset", "nanochat", "--model.preset");
  for (const auto& [key, value] : given) keys->set(key, value, formatted("--{}", key));
  finish_run_keys(config, *keys, start);
  return keys;
}

std::vector<std::string> problems_of(const Given& given) {
  RunConfig config;
  return nanochat_keys(config, given)->problems().lines();
}

std::string first_problem(const Given& given) {
  const std::vector<std::string> problems = problems_of(given);
  return problems.empty() ? "" : problems.front();
}

/// Values of the rules of nanochat (commit 92d63d4), which a separate Python program computed.
struct Published {
  std::int64_t depth, width, log2_batch, steps, decay_steps;
  double weight_decay, embed_lr;
};

constexpr std::array<Published, 27> kPublished{{
    {6, 384, 18, 1062, 690, 0.939612391372, 0.3},
    {7, 512, 18, 1776, 1154, 0.561862650164, 0.259807621135},
    {8, 512, 18, 1920, 1248, 0.519723144301, 0.259807621135},
    {9, 640, 19, 1492, 970, 0.472763499059, 0.328633534503},
    {10, 640, 19, 1605, 1043, 0.439626012388, 0.328633534503},
    {11, 768, 19, 2358, 1533, 0.299236560558, 0.3},
    {12, 768, 19, 2520, 1638, 0.28, 0.3},
    {13, 896, 19, 3538, 2300, 0.199406552181, 0.277746029932},
    {14, 896, 19, 3759, 2443, 0.187709561669, 0.277746029932},
    {15, 1024, 19, 5088, 3307, 0.138679310305, 0.259807621135},
    {16, 1024, 19, 5376, 3494, 0.13125008583, 0.259807621135},
    {17, 1152, 20, 3530, 2294, 0.141331330741, 0.346410161514},
    {18, 1152, 20, 3712, 2413, 0.13439326802, 0.346410161514},
    {19, 1280, 20, 4755, 3091, 0.104928509252, 0.328633534503},
    {20, 1280, 20, 4980, 3237, 0.100187776426, 0.328633534503},
    {21, 1408, 20, 6245, 4059, 0.0798903446532, 0.31333978072},
    {22, 1408, 20, 6517, 4236, 0.0765531615495, 0.31333978072},
    {23, 1536, 20, 8028, 5218, 0.0621493863279, 0.3},
    {24, 1536, 20, 8352, 5429, 0.0597384244634, 0.3},
    {25, 1664, 20, 10130, 6584, 0.0492520282715, 0.288230676849},
    {26, 1664, 20, 10510, 6832, 0.0474701870274, 0.288230676849},
    {27, 1792, 20, 12579, 8176, 0.0396641573137, 0.277746029932},
    {28, 1792, 20, 13020, 8463, 0.0383206966981, 0.277746029932},
    {29, 1920, 20, 15401, 10011, 0.0323957796588, 0.2683281573},
    {30, 1920, 20, 15907, 10340, 0.0313647985747, 0.2683281573},
    {31, 2048, 20, 18624, 12106, 0.0267899248623, 0.259807621135},
    {32, 2048, 21, 9600, 6240, 0.0367500769042, 0.367423461417},
}};

TEST(DepthKeys, EqualThePublishedRulesFromDepth6To32) {
  for (const Published& one : kPublished) {
    RunConfig config;
    const auto keys = nanochat_keys(config, {{"model.depth", std::to_string(one.depth)}});
    ASSERT_TRUE(keys->problems().empty()) << keys->problems().lines()[0];
    EXPECT_EQ(config.model.num_layers, one.depth);
    EXPECT_EQ(config.model.hidden_size, one.width) << one.depth;
    EXPECT_EQ(config.model.num_heads, one.width / 128) << one.depth;
    EXPECT_EQ(config.model.num_kv_heads, one.width / 128) << one.depth;
    EXPECT_EQ(config.train.seq_len, 2048);
    EXPECT_EQ(config.train.global_batch, (std::int64_t{1} << one.log2_batch) / 2048) << one.depth;
    EXPECT_EQ(config.train.steps, one.steps) << one.depth;
    EXPECT_EQ(config.optim.decay_steps, one.decay_steps) << one.depth;
    const auto value = [&](const char* key) { return optim_key<double>(config.optim, key); };
    const auto near = [&](double found, double expected) {
      EXPECT_NEAR(found / expected, 1, 1e-10) << one.depth;
    };
    near(value("weight_decay"), one.weight_decay);
    near(value("embed_lr"), one.embed_lr);
    near(value("value_lr"), one.embed_lr / 2);
    near(value("head_lr"), one.embed_lr / 0.3 * 0.008);
    const double by_batch = std::sqrt(std::exp2(static_cast<double>(one.log2_batch - 19)));
    near(config.optim.lr, 0.02 * by_batch);
    near(value("matrix_lr"), 0.02 * by_batch);
    near(value("scalar_lr"), 0.005 * by_batch);
    near(config.optim.min_lr, 0.001 * by_batch);
  }
}

TEST(DepthKeys, TheOriginOfAValueIsItsRule) {
  RunConfig config;
  const auto keys = nanochat_keys(config, {});
  EXPECT_EQ(config.model.depth, 20);
  EXPECT_EQ(keys->origin("model.depth"), "preset nanochat");
  EXPECT_EQ(keys->origin("model.hidden_size"), "64 x model.depth, rounded up to a multiple of 128");
  EXPECT_EQ(keys->origin("train.steps"), "12 x parameters / (train.global_batch x train.seq_len)");
  EXPECT_EQ(keys->origin("optim.matrix_lr"), "0.02 x sqrt(batch tokens / 2^19)");
  EXPECT_EQ(keys->origin("optim.weight_decay"),
            "0.28 x sqrt(batch tokens / 2^19) x parameters of depth 12 / parameters");
  EXPECT_EQ(keys->origin("optim.decay_steps"), "0.65 x train.steps");
  EXPECT_EQ(keys->origin("optim.momentum_final"), "preset nanochat");
}

TEST(DepthKeys, ExplicitKeysWinAndTheOthersFollowThem) {
  RunConfig config;
  const auto keys = nanochat_keys(config, {{"model.depth", "12"},
                                           {"train.global_batch", "64"},
                                           {"optim.head_lr", "0.5"},
                                           {"optim.beta1", "0.7"},
                                           {"model.embed_norm", "false"}});
  ASSERT_TRUE(keys->problems().empty()) << keys->problems().lines()[0];
  EXPECT_EQ(config.train.global_batch, 64);
  EXPECT_EQ(config.train.steps, 12 * 110100912LL / (64 * 2048));
  EXPECT_DOUBLE_EQ(optim_key<double>(config.optim, "matrix_lr"), 0.02 / 2);
  EXPECT_DOUBLE_EQ(optim_key<double>(config.optim, "weight_decay"), 0.28 / 2);
  EXPECT_EQ(optim_key<double>(config.optim, "head_lr"), 0.5);
  EXPECT_EQ(optim_key<double>(config.optim, "beta1"), 0.7);
  EXPECT_FALSE(config.model.embed_norm);
  EXPECT_TRUE(config.model.smear);

  RunConfig narrow;
  nanochat_keys(narrow, {{"model.depth", "12"}, {"model.hidden_size", "256"}});
  EXPECT_EQ(narrow.model.num_heads, 2);
  EXPECT_NEAR(optim_key<double>(narrow.optim, "value_lr") / narrow.optim.lr,
              0.15 / 0.02 * std::sqrt(3.0), 1e-12);
}

TEST(DepthKeys, AnotherOptimizerKeepsItsOwnValues) {
  RunConfig config;
  const auto keys = nanochat_keys(config, {{"optim.name", "adamw"}});
  ASSERT_TRUE(keys->problems().empty()) << keys->problems().lines()[0];
  EXPECT_EQ(config.optim.lr, optim::OptimConfig{}.lr);
  EXPECT_EQ(config.optim.schedule, "cosine");
  EXPECT_EQ(config.train.steps, 4980);
}

TEST(DepthKeys, DecayStepsFollowALengthThatIsNotKnownYet) {
  RunConfig config;
  const auto keys = nanochat_keys(config, {{"train.epochs", "2"}});
  ASSERT_TRUE(keys->problems().empty()) << keys->problems().lines()[0];
  EXPECT_EQ(config.train.steps, 0);
  EXPECT_TRUE(decay_follows_depth(config, *keys));
  EXPECT_EQ(decay_steps_of_depth(100), 65);
  EXPECT_EQ(decay_steps_of_depth(3530), 2294) << "half-way cases round to even";

  RunConfig given;
  const auto other = nanochat_keys(given, {{"train.epochs", "2"}, {"optim.decay_steps", "-1"}});
  EXPECT_FALSE(decay_follows_depth(given, *other));
}

TEST(DepthKeys, AResolvedFileLoadsBack) {
  RunConfig config;
  const auto keys = nanochat_keys(config, {{"model.depth", "8"}});
  RunConfig again;
  const std::unique_ptr<config::ConfigSet> file = make_run_keys(again);
  file->load_toml(keys->to_toml(), "config.toml");
  finish_run_keys(again, *file);
  EXPECT_TRUE(file->problems().empty()) << file->problems().lines()[0];
  EXPECT_EQ(file->to_toml(), keys->to_toml());
}

TEST(DepthKeys, InvalidCombinationsAreRefused) {
  EXPECT_EQ(first_problem({{"model.depth", "6"}, {"model.num_heads", "5"}}),
            "model.num_heads = 5, must divide model.hidden_size = 384 (of model.depth = 6), or "
            "model.head_dim must be set (--model.num_heads)");
  EXPECT_EQ(
      first_problem({{"model.depth", "6"}, {"model.num_heads", "5"}, {"model.head_dim", "64"}}),
      "");
  EXPECT_EQ(problems_of({{"model.depth", "0"}}),
            (std::vector<std::string>{"model.depth = 0, must be in [1, 1024] (--model.depth)"}));
  EXPECT_EQ(first_problem({{"model.depth", "1025"}}),
            "model.depth = 1025, must be in [1, 1024] (--model.depth)");
  EXPECT_EQ(first_problem({{"model.preset", "tiny"}, {"model.depth", "4"}}),
            "model.depth = 4, needs model.preset = nanochat (--model.depth)");
  EXPECT_EQ(first_problem({{"model.vocab_size", "0"}}),
            "model.vocab_size = 0, must be more than 0 with model.depth: the batch, the steps and "
            "the rates depend on the number of parameters (--model.vocab_size)");
  const std::string batch =
      "cannot be combined with model.depth, which gives train.global_batch: set "
      "train.global_batch instead";
  EXPECT_EQ(first_problem({{"train.accumulation", "4"}}),
            formatted("train.accumulation = 4, {} (--train.accumulation)", batch));
  EXPECT_EQ(first_problem({{"data.batch_phases", "0:8,5:16"}}),
            formatted("data.batch_phases = 0:8,5:16, {} (--data.batch_phases)", batch));
}

TEST(DepthKeys, ARunThatStartsFromWeightsKeepsTheUsualTraining) {
  RunStart start;
  start.has_shape = true;
  RunConfig config;
  const auto keys = nanochat_keys(config, {{"model.depth", "12"}}, start);
  EXPECT_EQ(config.optim.name, "adamw");
  EXPECT_EQ(config.train.steps, 0);
  EXPECT_EQ(config.model.hidden_size, 768);
}

}  // namespace
}  // namespace trireme::train
