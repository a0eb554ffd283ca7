#include "model/config.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/error.hpp"
#include "core/problems.hpp"
#include "model/lora/lora_config.hpp"
#include "model/rope_scaling.hpp"

namespace trireme::model {
namespace {

ModelConfig resolved(const char* preset, std::int64_t vocab) {
  ModelConfig config = model_preset(preset);
  resolve(config, vocab);
  return config;
}

std::string error_of(ModelConfig config, std::int64_t vocab = 6400) {
  try {
    resolve(config, vocab);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

// Parameter counts of reference models with a vocabulary of 6,400, from the logs of their authors.
TEST(ModelConfig, PresetsHaveTheKnownParameterCounts) {
  EXPECT_EQ(resolved("minimind-3", 6400).num_parameters(), 63'912'192);
  EXPECT_EQ(resolved("minimind-2-small", 6400).num_parameters(), 25'829'888);
  EXPECT_EQ(resolved("minimind-2", 6400).num_parameters(), 104'030'976);
  EXPECT_EQ(resolved("minimind-1024x16", 6400).num_parameters(), 183'796'736);
  EXPECT_EQ(resolved("tiny", 2000).num_parameters(), 1'142'144);
  EXPECT_EQ(resolved("minimind-3-moe", 6400).num_parameters(), 198'416'640);
  EXPECT_EQ(resolved("minimind-3-moe", 6400).num_active_parameters(), 63'936'768);
  EXPECT_EQ(resolved("minimind-2-moe", 6400).num_parameters(), 145'029'760);
  EXPECT_EQ(resolved("minimind-3", 6400).num_active_parameters(), 63'912'192);
}

TEST(ModelConfig, ExpertsThatCannotBeAreNamed) {
  const auto wrong = [](const std::function<void(MoeConfig&)>& change, const char* words) {
    ModelConfig config = model_preset("minimind-3-moe");
    change(config.moe);
    EXPECT_NE(error_of(config).find(words), std::string::npos) << error_of(config);
  };
  wrong([](MoeConfig& moe) { moe.num_experts_per_tok = 5; }, "model.num_experts_per_tok = 5");
  wrong([](MoeConfig& moe) { moe.num_experts = -1; }, "model.num_experts = -1");
  wrong([](MoeConfig& moe) { moe.first_dense_layers = 9; }, "model.num_layers");
  wrong([](MoeConfig& moe) { moe.router_score = "tanh"; }, "softmax");
  wrong([](MoeConfig& moe) { moe.router_aux_loss_coef = -1; }, "router_aux_loss_coef");
  ModelConfig dense = model_preset("minimind-3-moe");
  dense.moe.num_experts = 0;
  EXPECT_EQ(error_of(dense), "");
}

TEST(LoraTargets, AreInAttentionForAModelWithExperts) {
  LoraConfig lora;
  lora.rank = 4;
  const ModelConfig config = resolved("minimind-3-moe", 6400);
  EXPECT_EQ(lora_targets(lora, config),
            (std::array<bool, 7>{true, true, true, true, false, false, false}));
  lora.targets = "q_proj,up_proj";
  Problems problems;
  check_targets(lora, config, problems);
  EXPECT_FALSE(problems.empty());
}

TEST(ModelConfig, AShapeIsThatOfAPresetOrOfNone) {
  for (const std::string& name : model_preset_names()) {
    ModelConfig config = resolved(name.c_str(), 777);
    config.preset.clear();
    config.max_seq_len = 99;
    EXPECT_EQ(matching_preset(config), name);
    config.head_dim *= 2;
    EXPECT_EQ(matching_preset(config), "") << name;
  }
  ModelConfig other = resolved("minimind-3", 777);
  other.rope_theta = 10000;
  EXPECT_EQ(matching_preset(other), "");
}

TEST(RopeScaling, TextsParseToWhatTheySay) {
  const RopeScaling yarn =
      parse_rope_scaling("yarn,factor=4,original_max_position_embeddings=512,truncate=false");
  EXPECT_EQ(yarn.kind, RopeScaling::Kind::yarn);
  EXPECT_EQ(yarn.original_max, 512);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1.0);
  EXPECT_EQ(rope_scaling_text(parse_rope_scaling(rope_scaling_text(yarn))),
            rope_scaling_text(yarn));
  EXPECT_EQ(rope_scaling_text(parse_rope_scaling("")), "");

  const std::vector<std::pair<std::string, std::string>> cases{
      {"su,factor=2", "'su' is not known"},
      {"linear", "factor is missing"},
      {"dynamic,factor=2,original_max_position_embeddings=8,beta_fast=2", "no 'beta_fast'"},
      {"longrope,factor=2,original_max_position_embeddings=8,short_factor=1",
       "long_factor is missing"},
      {"longrope,factor=2,original_max_position_embeddings=8,short_factor=1:x,long_factor=1",
       "short_factor = '1:x'"},
      {"yarn", "factor is missing"},
      {"yarn,factor=2", "original_max_position_embeddings is missing"},
      {"yarn,factor=0.5,original_max_position_embeddings=8", "factor is below 1"},
      {"yarn,factor=x,original_max_position_embeddings=8", "factor = 'x'"},
      {"yarn,factor=2,factor=3,original_max_position_embeddings=8", "is given twice"},
      {"yarn,factor=2,original_max_position_embeddings=8,low_freq_factor=1",
       "no 'low_freq_factor'"},
      {"yarn,factor=2,original_max_position_embeddings=8,beta_slow=64", "beta_fast is below"},
      {"llama3,factor=2,original_max_position_embeddings=8,low_freq_factor=4", "is not above"}};
  for (const auto& [text, words] : cases) {
    ModelConfig config = model_preset("tiny");
    config.rope_scaling = text;
    const std::string error = error_of(config);
    EXPECT_NE(error.find(words), std::string::npos) << text << ": " << error;
    EXPECT_NE(error.find("model.rope_scaling = '" + text + "'"), std::string::npos) << error;
  }
}

/// Frequencies that turn often within the old length stay; those that turn less than once are
/// stretched by factor.
TEST(RopeScaling, StretchesOnlySlowFrequencies) {
  const auto plain = rope_frequencies(64, 1e6, {});
  for (const char* name : {"yarn", "llama3"}) {
    const auto scaled = rope_frequencies(
        64, 1e6, parse_rope_scaling(cat(name, ",factor=8,original_max_position_embeddings=1024")));
    EXPECT_EQ(scaled.front(), plain.front());
    EXPECT_DOUBLE_EQ(scaled.back(), plain.back() / 8);
    for (std::size_t i = 1; i < scaled.size(); ++i) EXPECT_LT(scaled[i], scaled[i - 1]) << name;
  }
}

TEST(ModelConfig, FfnWidthsFollowTheGeneration) {
  EXPECT_EQ(resolved("minimind-1024x16", 6400).intermediate_size, 2752);
  EXPECT_EQ(resolved("minimind-2-small", 6400).intermediate_size, 1408);
  EXPECT_EQ(resolved("minimind-3", 6400).intermediate_size, 2432);
}

TEST(ModelConfig, OtherHiddenSizeGetsItsOwnWidthAndHeadDim) {
  ModelConfig config = model_preset("minimind-3");
  config.hidden_size = 1024;
  resolve(config, 6400);
  EXPECT_EQ(config.intermediate_size, 3264);
  EXPECT_EQ(config.head_dim, 128);
  config.num_layers = 16;
  EXPECT_EQ(config.num_parameters(), 217'355'264);
}

TEST(ModelConfig, UntiedEmbeddingCountsTwice) {
  ModelConfig config = resolved("tiny", 2000);
  const std::int64_t tied = config.num_parameters();
  config.tie_embeddings = false;
  EXPECT_EQ(config.num_parameters(), tied + 2000 * 128);
  EXPECT_EQ(config.num_parameters_wide(), static_cast<double>(config.num_parameters()));
}

TEST(ModelConfig, UnknownPresetNamesTheNearest) {
  try {
    (void)model_preset("minimind-4");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("did you mean 'minimind-"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("tiny, minimind-3"), std::string::npos)
        << error.what();
  }
}

TEST(ModelConfig, ActivationsAreThoseOfTheTable) {
  ModelConfig config = model_preset("tiny");
  EXPECT_EQ(config.activation, "silu") << "that of every checkpoint without the value";
  for (const ActivationName& one : activation_names()) {
    config.activation = one.name;
    EXPECT_EQ(error_of(config), "");
  }
  config.activation = "gelu_tan";
  const std::string error = error_of(config);
  for (const char* words : {"model.activation = gelu_tan, must be one of silu, gelu_tanh, relu2",
                            "did you mean 'gelu_tanh'?"})
    EXPECT_NE(error.find(words), std::string::npos) << error;
}

TEST(ModelConfig, WithoutAPresetTheSizesAreNeeded) {
  ModelConfig config;
  const std::string text = error_of(config);
  for (const char* word : {"--model.preset", "tiny, minimind-3", "model.hidden_size", "num_heads"})
    EXPECT_NE(text.find(word), std::string::npos) << word << " not in: " << text;
  Problems problems;
  check(config, problems);
  EXPECT_TRUE(problems.empty()) << "they may come from a checkpoint";

  config.hidden_size = 96;
  config.num_layers = 1;
  config.num_heads = 3;
  resolve(config, 100);

  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.intermediate_size, 320) << "pi x 96, up to a multiple of 64";
}

TEST(ModelConfig, AllProblemsAreNamedAtOnce) {
  ModelConfig config = model_preset("tiny");
  config.num_kv_heads = 3;
  config.head_dim = 33;
  config.dropout = 1.0;
  config.vocab_size = 100;
  config.num_layers = -1;
  const std::string text = error_of(config, 6400);
  for (const char* key : {"num_kv_heads = 3", "head_dim = 33", "model.dropout = 1",
                          "vocab_size = 100", "num_layers = -1"}) {
    EXPECT_NE(text.find(key), std::string::npos) << key << " not in: " << text;
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
}

TEST(ModelConfig, VocabularyComesFromTheTokenizerOrMustBeGiven) {
  EXPECT_EQ(resolved("tiny", 1234).vocab_size, 1234);
  EXPECT_NE(error_of(model_preset("tiny"), 0).find("vocab_size"), std::string::npos);
}

std::vector<std::string> targets_of(const std::string& targets, const ModelConfig& model) {
  LoraConfig config;
  config.rank = 4;
  config.targets = targets;
  const LinearShapes linears = block_linears(model);
  const std::array<bool, 7> chosen = lora_targets(config, model);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < linears.size(); ++i)
    if (chosen[i]) names.emplace_back(linears[i].name());
  return names;
}

TEST(LoraConfig, TargetsAreNamesAllOrThoseThatAreSquare) {
  using Names = std::vector<std::string>;
  const ModelConfig model = resolved("minimind-2", 6400);
  EXPECT_EQ(targets_of("all-linear", model).size(), 7U);
  EXPECT_EQ(targets_of("square", model), (Names{"q_proj", "o_proj"})) << "as MiniMind's";
  EXPECT_EQ(targets_of("v_proj, q_proj", model), (Names{"q_proj", "v_proj"}));
  LoraConfig off;
  EXPECT_EQ(num_lora_parameters(off, model), 0);
  LoraConfig square;
  square.rank = 16;
  square.targets = "square";
  EXPECT_EQ(num_lora_parameters(square, model), 16 * 2 * 2 * 768 * 16);
}

TEST(LoraConfig, ScaleIsAlphaOverRankOrItsRoot) {
  LoraConfig config;
  config.rank = 4;
  EXPECT_EQ(config.scale(), 1) << "alpha is the rank";
  config.alpha = 8;
  EXPECT_EQ(config.scale(), 2);
  config.rslora = true;
  EXPECT_EQ(config.scale(), 4);
}

TEST(LoraConfig, WrongValuesAreNamedWithTheKnownOnes) {
  LoraConfig config;
  config.rank = -1;
  config.alpha = -2;
  config.dropout = 1;
  config.targets = "q_proj,wq,";
  Problems problems;
  check(config, problems);
  std::string text;
  for (const std::string& line : problems.lines()) text += line + '\n';
  for (const char* part : {"lora.rank = -1", "lora.alpha = -2", "lora.dropout = 1",
                           "lora.targets = wq", "lora.targets = ''", "all-linear", "down_proj"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
  }
  EXPECT_EQ(problems.lines().size(), 5U);

  ModelConfig wide = model_preset("tiny");
  wide.head_dim = 48;
  resolve(wide, 100);
  Problems none;
  LoraConfig square;
  square.rank = 2;
  square.targets = "square";
  check(square, none);
  EXPECT_TRUE(none.empty());
  check_targets(square, wide, none);
  EXPECT_EQ(none.lines().size(), 1U) << "this model has no square weight";
}

TEST(ModelConfig, CountsFlopsOfATokenAsThePalmPaperDoes) {
  ModelConfig config = model_preset("minimind-3");
  resolve(config, 6400);
  const double weights = static_cast<double>(config.num_parameters());
  const double attention = 12.0 * 8 * 8 * 96 * 512;
  EXPECT_DOUBLE_EQ(config.flops_per_token(512),
                   6 * weights + attention);  // tied: the table multiplies once, as the head
  config.tie_embeddings = false;
  EXPECT_DOUBLE_EQ(config.flops_per_token(512),
                   6 * weights + attention);  // a lookup is not a multiplication
  const double vocabulary = 6400.0 * static_cast<double>(config.hidden_size);
  EXPECT_DOUBLE_EQ(config.flops_per_token(512, {.has_vocabulary = false}),
                   6 * (weights - vocabulary) + attention);
  EXPECT_DOUBLE_EQ(config.flops_per_token(512, {.adapter_weights = 1000}),
                   4 * weights + 6 * 1000 + attention);
}

TEST(ModelConfig, ItsQueriesSeeTheWholeDocumentUpToThemselves) {
  ModelConfig config = model_preset("minimind-3");
  resolve(config, 6400);

  const ops::AttentionSetup setup = config.attention_setup(0, {{0, 3, 9}});

  EXPECT_DOUBLE_EQ(setup.scale, 1 / std::sqrt(96.0));
  EXPECT_EQ(setup.bounds, (ops::RowBounds{{0, 3, 9}}));
  EXPECT_TRUE(setup.mask.causal);
  EXPECT_EQ(setup.mask.window, 0);
}

}  // namespace
}  // namespace trireme::model
