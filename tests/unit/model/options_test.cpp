/// Tests the options of a model that most models do not set.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/error.hpp"
#include "model/config.hpp"
#include "model/residual_terms.hpp"
#include "model/rope_scaling.hpp"

namespace trireme::model {
namespace {

/// Returns the error of a config with a vocabulary of 500; "" if it is valid.
std::string error_of(ModelConfig config) {
  try {
    resolve(config, 500);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(ModelConfig, OptionsThatCannotBeAreNamed) {
  const auto wrong = [](const std::function<void(ModelConfig&)>& change, const char* words) {
    ModelConfig config = model_preset("tiny");
    change(config);
    EXPECT_NE(error_of(config).find(words), std::string::npos) << error_of(config);
  };
  wrong([](ModelConfig& c) { c.rotary_dim = 3; }, "model.rotary_dim = 3, must be even");
  wrong([](ModelConfig& c) { c.rotary_dim = 34; }, "[0, model.head_dim = 32]");
  wrong([](ModelConfig& c) { c.sliding_window = -1; }, "model.sliding_window = -1");
  wrong([](ModelConfig& c) { c.full_attention_layers = "1"; }, "set model.sliding_window");
  wrong([](ModelConfig& c) { c.local_rope_theta = 10; }, "set model.sliding_window");
  wrong([](ModelConfig& c) { c.local_rope_theta = -1; }, "model.local_rope_theta = -1");
  wrong([](ModelConfig& c) { c.no_rope_layers = "0,4"; }, "below model.num_layers = 4");
  wrong([](ModelConfig& c) { c.embedding_scale = 0; }, "model.embedding_scale = 0");
  wrong([](ModelConfig& c) { c.pre_norms = false; }, "set model.post_norms");
  wrong(
      [](ModelConfig& c) {
        c.qk_norm = false;
        c.qk_norm_whole = true;
      },
      "model.qk_norm_whole = true, needs model.qk_norm = true");
  wrong([](ModelConfig& c) { c.attention_softcap = -1; }, "model.attention_softcap = -1");
  wrong([](ModelConfig& c) { c.logit_softcap = INFINITY; }, "model.logit_softcap = inf");
  wrong([](ModelConfig& c) { c.window_pattern = "SXL"; }, "must have only the letters S and L");
  wrong([](ModelConfig& c) { c.short_window = 9; }, "needs model.window_pattern");
  wrong([](ModelConfig& c) { c.short_window = 40000; }, "[0, model.max_seq_len = 32768]");
  wrong(
      [](ModelConfig& c) {
        c.window_pattern = "SL";
        c.sliding_window = 9;
        c.full_attention_layers = "1";
      },
      "cannot be combined with model.full_attention_layers");
  wrong([](ModelConfig& c) { c.qk_scale = 0; }, "model.qk_scale = 0");
  wrong([](ModelConfig& c) { c.init = "xavier"; }, "model.init = xavier");
  wrong([](ModelConfig& c) { c.softcap = -1; }, "model.softcap = -1");
  wrong(
      [](ModelConfig& c) {
        c.softcap = 15;
        c.logit_softcap = 30;
      },
      "model.softcap = 15, is another name of model.logit_softcap = 30");
  wrong([](ModelConfig& c) { c.value_embeddings = "1,4"; }, "below model.num_layers = 4");
  wrong([](ModelConfig& c) { c.value_embeddings = "all"; }, "must be a list of ascending layers");
  wrong([](ModelConfig& c) { c.norm = "batch"; }, "model.norm = batch");
  wrong([](ModelConfig& c) { c.mlp = "none"; }, "model.mlp = none");
  wrong([](ModelConfig& c) { c.position = "sine"; }, "model.position = sine");
  wrong(
      [](ModelConfig& c) {
        c.position = "learned";
        c.rotary_dim = 4;
      },
      "model.rotary_dim = 4, needs a rotary embedding");
  wrong(
      [](ModelConfig& c) {
        c.parallel_residual = c.post_norms = true;
        c.pre_norms = false;
      },
      "model.parallel_residual = true, needs model.pre_norms");
  wrong(
      [](ModelConfig& c) {
        c.norm = "layer";
        c.norm_gain = false;
      },
      "model.norm_gain = false, needs model.norm = rms");
  wrong(
      [](ModelConfig& c) {
        c.position = "learned";
        c.smear = true;
      },
      "model.smear = true, needs model.position = rope");
  for (const char* list : {"1,", "1,1", "2,1", "-1", "a", ",", "1-3"})
    wrong([list](ModelConfig& c) { c.no_rope_layers = list; },
          "must be a list of ascending layers");
  ModelConfig experts = model_preset("minimind-3-moe");
  experts.mlp_bias = true;
  EXPECT_NE(error_of(experts).find("model.mlp_bias = true"), std::string::npos);
  experts.mlp_bias = false;
  experts.mlp = "plain";
  EXPECT_NE(error_of(experts).find("model.mlp = plain, is not supported"), std::string::npos);
  experts.mlp = "gated";
  experts.post_norms = true;
  EXPECT_EQ(error_of(experts), "");
  experts.pre_norms = false;
  EXPECT_NE(error_of(experts).find("model.pre_norms = false, is not supported"), std::string::npos);
}

TEST(ModelConfig, CountsTheParametersOfItsOptions) {
  ModelConfig config = model_preset("tiny");  // 4 layers, width 128, 4 + 2 + 2 heads of 32
  resolve(config, 500);
  const std::int64_t before = config.num_parameters();
  config.qkv_bias = true;
  EXPECT_EQ(config.num_parameters() - before, 4 * 8 * 32);
  config.attention_output_bias = true;
  EXPECT_EQ(config.num_parameters() - before, 4 * (8 * 32 + 128));
  config.post_norms = true;
  EXPECT_EQ(config.num_parameters() - before, 4 * (8 * 32 + 3 * 128));
  config.mlp_bias = true;
  EXPECT_EQ(config.num_parameters() - before,
            4 * (8 * 32 + 4 * 128 + 2 * config.intermediate_size));
  config.pre_norms = false;
  EXPECT_EQ(config.num_parameters() - before,
            4 * (8 * 32 + 2 * 128 + 2 * config.intermediate_size));
  config.qk_norm_whole = true;
  EXPECT_EQ(config.num_parameters() - before,
            4 * (8 * 32 + 2 * 128 + 2 * config.intermediate_size + (4 + 2 - 2) * 32));
}

TEST(ModelConfig, CountsTheParametersOfTheResidualStream) {
  ModelConfig config = model_preset("tiny");  // 4 layers, width 128, 2 key heads of 32
  resolve(config, 500);
  const std::int64_t before = config.num_parameters();
  const double flops = config.flops_per_token(64);
  config.value_embeddings = "alternate";
  EXPECT_EQ(config.num_parameters() - before, 2 * (500 * 64 + 2 * 12));
  EXPECT_DOUBLE_EQ(config.flops_per_token(64) - flops, 6 * 2 * 2 * 12);  // tables are lookups
  config.value_embeddings.clear();
  config.smear = true;
  EXPECT_EQ(config.num_parameters() - before, 24 + 1);
  config.residual_scalars = config.skips = config.backout = true;
  EXPECT_EQ(config.num_parameters() - before, 24 + 1 + 4 * 2 + 2 + 1);
  config.value_residual = true;
  EXPECT_EQ(config.num_parameters() - before, 24 + 1 + 4 * 2 + 2 + 1 + 3);  // all layers but one
  config.value_residual = false;
  config.norm_gain = false;
  EXPECT_EQ(config.num_parameters() - before,
            24 + 1 + 4 * 2 + 2 + 1 - 4 * (2 * 128 + 2 * 32) - 128);
}

TEST(ResidualTerms, SkipsReadTheFirstLayersInReverseOrder) {
  ModelConfig config = model_preset("tiny");
  config.num_layers = 5;  // the middle layer has no partner
  config.skips = config.residual_scalars = config.backout = true;

  const auto sources = [&](std::int64_t layer) {
    std::vector<std::int64_t> of_layer;
    for (const ResidualTerm& term : residual_terms(config, layer)) of_layer.push_back(term.source);
    return of_layer;
  };

  EXPECT_EQ(sources(2), (std::vector<std::int64_t>{kEmbeddingSource}));
  EXPECT_EQ(sources(3), (std::vector<std::int64_t>{1, kEmbeddingSource}));
  EXPECT_EQ(sources(4), (std::vector<std::int64_t>{0, kEmbeddingSource}));
  EXPECT_EQ(sources(5), (std::vector<std::int64_t>{2}));
}

TEST(ResidualTerms, BeginWithTheNumbersOfTheInitialization) {
  ModelConfig config = model_preset("tiny");
  config.num_layers = 11;
  config.residual_scalars = true;
  EXPECT_EQ(residual_terms(config, 4).front().scale_init, 1);
  EXPECT_EQ(residual_terms(config, 4).front().factor_init, 0);
  config.init = "uniform";
  EXPECT_DOUBLE_EQ(residual_terms(config, 0).front().scale_init, 1.15);
  EXPECT_DOUBLE_EQ(residual_terms(config, 10).front().scale_init, 1.05);
  EXPECT_DOUBLE_EQ(residual_terms(config, 5).front().factor_init, 0.125);
}

TEST(ModelConfig, SoftcapIsAnotherNameOfLogitSoftcap) {
  ModelConfig config = model_preset("tiny");
  config.softcap = 15;
  resolve(config, 500);
  EXPECT_EQ(config.logit_softcap, 15);
  EXPECT_EQ(config.softcap, 0);
}

TEST(ModelConfig, CountsLayerNormPlainMlpAndPositions) {
  ModelConfig config = model_preset("tiny");
  resolve(config, 500);
  const std::int64_t before = config.num_parameters();
  config.norm = "layer";
  EXPECT_EQ(config.num_parameters() - before, (2 * 4 + 1) * 128);
  config.position = "learned";
  EXPECT_EQ(config.num_parameters() - before, (2 * 4 + 1 + config.max_seq_len) * 128);
  EXPECT_FALSE(config.has_rope(0));
  const double flops = config.flops_per_token(16);
  config.mlp = "plain";
  EXPECT_EQ(config.num_parameters() - before,
            (2 * 4 + 1 + config.max_seq_len) * 128 - 4 * 128 * config.intermediate_size);
  EXPECT_EQ(flops - config.flops_per_token(16),
            6.0 * 4 * 128 * static_cast<double>(config.intermediate_size));
}

TEST(ModelConfig, AWindowLimitsTheKeysOfItsLayers) {
  ModelConfig config = model_preset("tiny");
  config.sliding_window = 100;
  config.full_attention_layers = "1,3";
  config.no_rope_layers = "1";
  config.attention_scale_dim = 9;
  resolve(config, 500);

  EXPECT_EQ(config.attention_setup(0).mask.window, 100);
  EXPECT_EQ(config.attention_setup(1).mask.window, 0);
  EXPECT_DOUBLE_EQ(config.attention_setup(1).scale, 1.0 / 3);
  EXPECT_EQ(config.keys_of_last_query(512), 2 * 100 + 2 * 512);
  EXPECT_EQ(config.keys_of_last_query(64), 4 * 64);
  EXPECT_TRUE(config.has_rope(0));
  EXPECT_FALSE(config.has_rope(1));
}

TEST(ModelConfig, APatternGivesTheWindowsOfItsLayers) {
  ModelConfig config = model_preset("tiny");
  config.num_layers = 7;
  config.max_seq_len = 2048;
  config.window_pattern = "SSL";
  resolve(config, 500);

  EXPECT_EQ(config.short_window, 512);
  EXPECT_EQ(config.keys_of_last_query(2048), 4 * 512 + 3 * 2048);  // S S L S S L L
  EXPECT_EQ(config.attention_setup(6).mask.window, 0);
  config.sliding_window = 1024;
  EXPECT_EQ(config.keys_of_last_query(2048), 4 * 512 + 3 * 1024);
}

TEST(RopeScaling, LongropeFollowsTheLongestText) {
  const RopeScaling scaling = parse_rope_scaling(
      "longrope,factor=4,original_max_position_embeddings=64,short_factor=1:2,long_factor=4:8");
  EXPECT_EQ(scaling.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(64.0)));
  EXPECT_EQ(rope_scaling_text(parse_rope_scaling(rope_scaling_text(scaling))),
            rope_scaling_text(scaling));
  const auto plain = rope_frequencies(4, 100.0, {});
  EXPECT_EQ(rope_frequencies(4, 100.0, scaling, 64), (std::vector<double>{plain[0], plain[1] / 2}));
  EXPECT_EQ(rope_frequencies(4, 100.0, scaling, 65),
            (std::vector<double>{plain[0] / 4, plain[1] / 8}));
  EXPECT_EQ(rope_frequencies(4, 100.0, parse_rope_scaling("linear,factor=5")),
            (std::vector<double>{plain[0] / 5, plain[1] / 5}));
}

TEST(RopeScaling, KindsThatDoNotFitTheModelAreNamed) {
  ModelConfig config = model_preset("tiny");
  config.max_seq_len = 9;
  config.rope_scaling = "dynamic,factor=2,original_max_position_embeddings=8";
  EXPECT_NE(error_of(config).find("model.max_seq_len = 9 with dynamic RoPE scaling must be at most "
                                  "original_max_position_embeddings = 8"),
            std::string::npos)
      << error_of(config);
  config.max_seq_len = 8;
  EXPECT_EQ(error_of(config), "");
  config.rope_scaling =
      "longrope,factor=4,original_max_position_embeddings=64,short_factor=1:2,long_factor=4:8";
  EXPECT_NE(error_of(config).find("short_factor has 2 numbers, must be 16"), std::string::npos)
      << error_of(config);
  config.rotary_dim = 4;
  EXPECT_EQ(error_of(config), "");
}

}  // namespace
}  // namespace trireme::model
