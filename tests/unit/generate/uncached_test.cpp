/// Compares greedy texts of the engine, which caches keys and values, with those of full forward
/// passes, for every kind of model.

#include <gtest/gtest.h>

#include "generate/answer_all.hpp"
#include "unit/generate/small_model.hpp"

namespace trireme::testing {
namespace {

using namespace generate;

using Ids = std::vector<std::uint32_t>;

class EqualsUncached : public ::testing::TestWithParam<SmallOptions> {};

TEST_P(EqualsUncached, AloneAndAmongOthersInChunksOfPrompts) {
  const SmallModel small(GetParam());
  constexpr std::int64_t kNew = 6;
  const auto prompts = random_prompts(32, 1, 40);
  std::vector<Ids> expected;
  for (const Ids& prompt : prompts) expected.push_back(small.greedy_uncached(prompt, kNew));

  const EngineConfig whole{.prompt_tokens = 4096, .prompt_tokens_while_decoding = 4096};
  const EngineConfig pieces{.prompt_tokens = 7, .prompt_tokens_while_decoding = 3};
  for (const std::int64_t batch : {1, 8, 32}) {
    for (EngineConfig config : {whole, pieces}) {
      config.max_batch = batch;
      GenerationEngine engine(*small.model, small.tokenizer, config);
      const auto answers = answer_all(engine, greedy_requests(prompts, kNew));
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(ids_of(answers[i]), expected[i])
            << "batch " << batch << ", prompt " << i << ", chunks of " << config.prompt_tokens;
        EXPECT_EQ(answers[i].finish, FinishReason::length);
      }
      EXPECT_EQ(engine.counters().kv_blocks_used, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, EqualsUncached,
    ::testing::Values(SmallOptions{}, SmallOptions{.preset = "minimind-2", .tie = false},
                      SmallOptions{
                          .rope_scaling = "yarn,factor=4,original_max_position_embeddings=32"},
                      SmallOptions{.lora_rank = 3},
                      SmallOptions{.change =
                                       [](model::ModelConfig& config) {
                                         config.qkv_bias = config.attention_output_bias =
                                             config.mlp_bias = true;
                                         config.rotary_dim = 12;
                                         config.no_rope_layers = "1";
                                       }},
                      SmallOptions{.change =
                                       [](model::ModelConfig& config) {
                                         config.qk_norm_whole = config.post_norms = true;
                                         config.pre_norms = false;
                                       }},
                      SmallOptions{.change =
                                       [](model::ModelConfig& config) {
                                         config.norm = "layer";
                                         config.mlp = "plain";
                                         config.position = "learned";
                                         config.activation = "gelu_tanh";
                                         config.mlp_bias = true;
                                       }},
                      SmallOptions{.change =
                                       [](model::ModelConfig& config) {
                                         config.norm = "layer";
                                         config.parallel_residual = true;
                                         config.activation = "gelu";
                                       }},
                      SmallOptions{.change =
                                       [](model::ModelConfig& config) {
                                         config.attention_softcap = 0.5;
                                         config.logit_softcap = 0.1;
                                       }},
                      SmallOptions{.change =
                                       [](model::ModelConfig& config) {
                                         config.norm_gain = false;
                                         config.embed_norm = config.smear = true;
                                         config.residual_scalars = config.backout = true;
                                         config.qk_scale = 1.2;
                                         config.init = "uniform";
                                         config.value_embeddings = "alternate";
                                       }},
                      SmallOptions{.change =
                                       [](model::ModelConfig& config) {
                                         config.skips = config.backout = true;
                                         config.value_residual = true;
                                         config.window_pattern = "SL";
                                         config.short_window = 5;
                                         config.sliding_window = 9;
                                         config.value_embeddings = "0";
                                       }},
                      SmallOptions{.change =
                                       [](model::ModelConfig& config) {
                                         config.norm = "layer";
                                         config.mlp = "plain";
                                         config.position = "learned";
                                         config.embed_norm = true;
                                         config.residual_scalars = config.skips = true;
                                         config.backout = true;
                                         config.value_embeddings = "alternate";
                                       }},
                      SmallOptions{.change =
                                       [](model::ModelConfig& config) {
                                         config.parallel_residual = true;
                                         config.mlp = "plain";
                                         config.activation = "relu2";
                                         config.norm_gain = false;
                                         config.smear = config.residual_scalars = true;
                                         config.window_pattern = "SL";
                                         config.short_window = 5;
                                       }},
                      // windows shorter than most prompts, in one of the layers
                      SmallOptions{.change = [](model::ModelConfig& config) {
                        config.sliding_window = 5;
                        config.full_attention_layers = "1";
                        config.local_rope_theta = 100;
                        config.post_norms = true;
                        config.attention_scale_dim = 9;
                        config.embedding_scale = 1.5;
                      }}));

}  // namespace
}  // namespace trireme::testing
