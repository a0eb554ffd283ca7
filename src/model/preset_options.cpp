#include "model/preset_options.hpp"

#include <string>

#include "model/depth_rule.hpp"
#include "model/layer_list.hpp"

namespace trireme::model {

/// The smallest GPT-2 of OpenAI, with 124 million parameters.
void set_gpt2(ModelConfig& c) {
  c.norm = "layer";
  c.mlp = "plain";
  c.position = "learned";
  c.activation = "gelu_tanh";
  c.qkv_bias = c.attention_output_bias = c.mlp_bias = true;
  c.max_seq_len = 1024;
}

/// The model of nanochat, commit 92d63d4. The depth gives the sizes.
void set_nanochat(ModelConfig& c) {
  c.depth = DepthRule::kDefaultDepth;
  c.max_seq_len = DepthRule::kSequence;
  c.vocab_size = DepthRule::kVocabulary;
  c.norm_gain = false;
  c.embed_norm = c.residual_scalars = c.backout = c.smear = c.zero_projections = true;
  c.mlp = "plain";
  c.activation = "relu2";
  c.rope_theta = 1e5;
  c.qk_scale = 1.2;
  c.logit_softcap = 15;
  c.init = "uniform";
  c.value_embeddings = kAlternate;
  c.window_pattern = "SSSL";
}

/// The model of record 11 of modded-nanoGPT (2024-11-10). Source: KellerJordan/modded-nanogpt, log in
/// records/track_1_short/2024-11-10_UNetDoubleLr. Its norms use the epsilon of the dtype.
void set_nanogpt(ModelConfig& c) {
  c.max_seq_len = 1024;
  c.vocab_size = 50304;  // the 50257 tokens of GPT-2, padded to a multiple of 128
  c.norm_gain = false;
  c.embed_norm = c.residual_scalars = c.skips = c.value_residual = c.zero_projections = true;
  c.mlp = "plain";
  c.activation = "relu2";
  c.rope_theta = 1e4;
  c.logit_softcap = 30;
  c.init = "linear";
}

}  // namespace trireme::model
