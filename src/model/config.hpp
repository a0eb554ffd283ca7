#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/experts/moe_config.hpp"
#include "ops/attention/plan.hpp"

namespace trireme {

class Problems;

}  // namespace trireme

namespace trireme::model {

/// The parts of a model that a run computes and trains.
struct TrainedParts {
  bool has_vocabulary = true;        // false: a reward head replaces the output matrix
  std::int64_t adapter_weights = 0;  // weights of all adapters; 0: all weights are trained
};

/// The shape of a transformer. Covers MiniMind V3 (Qwen3: QK norm, GQA, gated MLP, RoPE, RMSNorm,
/// tied embedding), MiniMind V2 and Llama. A size of 0 is derived by resolve(). Source of presets
/// and MLP widths: jingyaogong/minimind, commits 7da201a (V2) and d65ef2c (V3).
struct ModelConfig {
  std::string preset;      // "": hidden_size, num_layers and num_heads are given
  std::int64_t depth = 0;  // above 0: gives the sizes, see depth_rule.hpp
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;       // default: from the preset, else num_heads
  std::int64_t head_dim = 0;           // default: hidden_size / num_heads
  std::int64_t intermediate_size = 0;  // default: by the rule of the preset, else of MiniMind V3
  std::int64_t vocab_size = 0;         // default: size of the tokenizer
  std::int64_t max_seq_len = 32768;
  bool tie_embeddings = true;
  bool qk_norm = true;
  bool qk_norm_whole = false;  // one norm over all heads
  bool qkv_bias = false;
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool pre_norms = true;
  bool post_norms = false;
  std::int64_t sliding_window = 0;       // 0: every query sees all earlier keys of its document
  std::string full_attention_layers;     // layers without the window, see layer_list.hpp
  std::int64_t attention_scale_dim = 0;  // 0: head_dim
  double attention_softcap = 0;          // 0: none
  double logit_softcap = 0;              // 0: none
  double embedding_scale = 1.0;
  std::string norm = "rms";
  std::string mlp = "gated";
  std::string position = "rope";
  bool parallel_residual = false;
  std::string activation = "silu";  // also for checkpoints that do not store this key
  double rope_theta = 1e6;
  double local_rope_theta = 0;  // 0: all layers have the same frequencies
  std::int64_t rotary_dim = 0;  // 0: head_dim
  std::string no_rope_layers;   // see layer_list.hpp
  std::string rope_scaling;     // see parse_rope_scaling; "": none
  double norm_eps = 1e-6;
  // Options of modded-nanoGPT and nanochat.
  std::string window_pattern;     // "": full_attention_layers has the layers without a window
  std::int64_t short_window = 0;  // with window_pattern; 0: a quarter of max_seq_len
  bool norm_gain = true;
  bool embed_norm = false;
  double qk_scale = 1.0;
  double softcap = 0;  // resolve() moves the value to logit_softcap
  std::string init = "normal";
  bool zero_projections = false;
  bool residual_scalars = false;
  bool skips = false;
  bool backout = false;
  bool smear = false;
  std::string value_embeddings;  // "", "alternate" or a list of layers, see layer_list.hpp
  bool value_residual = false;
  double dropout = 0.0;            // embedding, residual and MLP outputs
  double attention_dropout = 0.0;  // plain attention path only
  MoeConfig moe;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("preset", self.preset,
          "named shape: tiny, minimind-3, minimind-3-moe, minimind-2-small, minimind-2, "
          "minimind-2-moe, minimind-1024x16, gpt-1.7b, gpt-7.1b, gpt-16b, gpt-32b, gpt-70b, "
          "gpt-119b, gpt-177b, gpt-314b, gpt-462b, gpt2-124m, nanogpt-11, nanochat; empty: use the "
          "start checkpoint or the sizes below");
    visit(
        "depth", self.depth,
        "preset nanochat: number of layers, which also gives the width, the heads, the batch, the "
        "steps, the rates and the weight decay; default 20");
    visit("hidden_size", self.hidden_size, "width of the residual stream; 0: from the preset");
    visit("num_layers", self.num_layers, "number of transformer blocks; 0: from the preset");
    visit("num_heads", self.num_heads, "number of query heads; 0: from the preset");
    visit(
        "num_kv_heads", self.num_kv_heads,
        "number of key and value heads, a divisor of num_heads; 0: from the preset, else num_heads");
    visit("head_dim", self.head_dim, "size of one head, even; 0: hidden_size / num_heads");
    visit("intermediate_size", self.intermediate_size,
          "width of the MLP; 0: from the preset's rule");
    visit("vocab_size", self.vocab_size, "rows of the embedding; 0: size of the tokenizer");
    visit("max_seq_len", self.max_seq_len, "maximum sequence length");
    visit("tie_embeddings", self.tie_embeddings, "use the embedding as the output matrix");
    visit("qk_norm", self.qk_norm, "RMSNorm on each query and key head (Qwen3)");
    visit(
        "qk_norm_whole", self.qk_norm_whole,
        "the RMSNorm of qk_norm is over all query heads together, and over all key heads (OLMo 2)");
    visit("qkv_bias", self.qkv_bias, "add a bias to queries, keys and values (Qwen2)");
    visit("attention_output_bias", self.attention_output_bias,
          "add a bias to the attention output");
    visit("mlp_bias", self.mlp_bias, "add a bias to all matrices of the MLP");
    visit("pre_norms", self.pre_norms,
          "norm on the inputs of attention and MLP; false needs post_norms (OLMo 2)");
    visit("post_norms", self.post_norms,
          "norm on the outputs of attention and MLP before they are added (Gemma 3)");
    visit("sliding_window", self.sliding_window,
          "number of keys that a query sees, including its own; 0: no limit");
    visit("full_attention_layers", self.full_attention_layers,
          "layers without the sliding window, as a list from 0: 5,11");
    visit("attention_scale_dim", self.attention_scale_dim,
          "attention scores are divided by the square root of this number; 0: head_dim");
    visit("attention_softcap", self.attention_softcap,
          "attention scores s become c * tanh(s / c) with this c, without fast attention kernels "
          "(Gemma 2); 0: off");
    visit("logit_softcap", self.logit_softcap,
          "logits l become c * tanh(l / c) with this c (Gemma 2); 0: off");
    visit("embedding_scale", self.embedding_scale, "factor of the embedding output");
    visit("norm", self.norm,
          "norm of the residual stream: rms (RMSNorm) or layer (LayerNorm with bias, GPT-2)");
    visit("mlp", self.mlp, "gated (gate, up and down) or plain (up and down, GPT-2)");
    visit(
        "position", self.position,
        "rope (rotary embedding) or learned (a table of max_seq_len rows, added to the embedding; "
        "positions count from 0 in each document; GPT-2)");
    visit("parallel_residual", self.parallel_residual,
          "attention and MLP of a block read the same input (GPT-NeoX)");
    visit("activation", self.activation, "activation function of the MLP gate, or of a plain MLP");
    visit("rope_theta", self.rope_theta, "base of the rotary frequencies");
    visit("local_rope_theta", self.local_rope_theta,
          "base of the rotary frequencies in layers with the sliding window, without rope_scaling; "
          "0: like all layers");
    visit("rotary_dim", self.rotary_dim, "rotated elements of each head, even; 0: all");
    visit("no_rope_layers", self.no_rope_layers,
          "layers without rotary embedding, as a list from 0: 3,7");
    visit("rope_scaling", self.rope_scaling,
          "RoPE scaling for longer texts: yarn,factor=F,original_max_position_embeddings=N; also "
          "llama3, linear, dynamic and longrope, with their values as in transformers");
    visit("norm_eps", self.norm_eps, "epsilon of every norm");
    visit(
        "window_pattern", self.window_pattern,
        "windows of the layers, repeated: S has short_window, L has sliding_window; the last layer "
        "has L (SSSL, nanochat)");
    visit("short_window", self.short_window,
          "window of the layers S; 0: a quarter of max_seq_len, rounded up to 128");
    visit("norm_gain", self.norm_gain, "norms have weights; false: only 1 / RMS (modded-nanoGPT)");
    visit("embed_norm", self.embed_norm,
          "RMSNorm without weights on the embedding output (nanochat)");
    visit("qk_scale", self.qk_scale, "factor of queries and of keys after their norm (nanochat)");
    visit("softcap", self.softcap, "another name of logit_softcap");
    visit("init", self.init,
          "initial values: normal (standard deviation 0.02), uniform (matrices within "
          "sqrt(3 / hidden_size), with the other values of nanochat) or linear (matrices within "
          "1 / sqrt(inputs), embedding with standard deviation 1, head of zeros; modded-nanoGPT)");
    visit("zero_projections", self.zero_projections,
          "output matrices of attention and MLP begin as zeros (modded-nanoGPT)");
    visit(
        "residual_scalars", self.residual_scalars,
        "each layer begins with r x + z e: x is its input, e is the output of the embedding, and r "
        "and z are trained");
    visit("skips", self.skips,
          "the last layers add the outputs of the first layers in reverse order, each times a "
          "trained number (U-net)");
    visit("backout", self.backout,
          "subtract the output of the middle layer, times a trained number, before the final norm");
    visit("smear", self.smear,
          "add a gated part of the previous token's embedding to each token (nanochat)");
    visit(
        "value_embeddings", self.value_embeddings,
        "layers that add a gated embedding of the token to their values, as a list from 0: 1,3,5; "
        "alternate: every second layer, with the last layer");
    visit("value_residual", self.value_residual,
          "the values v of each layer become (1 - z) v + z w: w are the values of the first layer, "
          "and z is trained (modded-nanoGPT)");
    visit("dropout", self.dropout,
          "dropout probability on embedding, residual and MLP outputs, in [0, 1)");
    visit("attention_dropout", self.attention_dropout,
          "dropout probability on attention weights, plain path only, in [0, 1)");
    MoeConfig::fields(self.moe, visit);
  }

  /// Returns which keys each query sees in a layer, for these document boundaries. Kernels and
  /// costs use this definition.
  [[nodiscard]] ops::AttentionSetup attention_setup(std::int64_t layer,
                                                    ops::RowBounds bounds = {}) const;
  /// Returns the different masks of the layers, in order of their first layer.
  [[nodiscard]] std::vector<ops::AttentionMask> attention_masks() const;
  /// Returns the window of a layer; 0: no limit.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const;
  /// Returns true if the sliding window applies in this layer; with window_pattern, the short one.
  [[nodiscard]] bool has_window(std::int64_t layer) const;
  /// Returns false if the layer has no rotary embedding.
  [[nodiscard]] bool has_rope(std::int64_t layer) const;

  /// Returns false if the MLP is plain, without gate.
  [[nodiscard]] bool gated_mlp() const { return mlp == "gated"; }

  /// Returns true if the norms are LayerNorm, with a bias beside each weight.
  [[nodiscard]] bool layer_norm() const { return norm == "layer"; }

  /// Returns true if the model has a table of positions.
  [[nodiscard]] bool learned_positions() const { return position == "learned"; }

  /// Returns the number of matrices of a dense MLP that read its input.
  [[nodiscard]] std::int64_t mlp_inputs() const { return gated_mlp() ? 2 : 1; }

  /// Returns the number of elements of a norm: its weight and its bias, if it has them.
  [[nodiscard]] std::int64_t norm_size() const {
    return norm_gain ? hidden_size * (layer_norm() ? 2 : 1) : 0;
  }

  /// Returns true if the layer has an embedding that is added to its values.
  [[nodiscard]] bool has_value_embedding(std::int64_t layer) const;
  /// Returns the number of layers with such an embedding.
  [[nodiscard]] std::int64_t num_value_embeddings() const;

  /// Returns true if the layer mixes values of the first layer into its own.
  [[nodiscard]] bool mixes_first_values(std::int64_t layer) const {
    return value_residual && layer > 0 && layer < num_layers;
  }

  /// Returns true if a later layer reads the values of this layer.
  [[nodiscard]] bool gives_first_values(std::int64_t layer) const {
    return value_residual && layer == 0 && num_layers > 1;
  }

  /// Returns the number of weights of the value embedding of one layer, without its gate.
  [[nodiscard]] std::int64_t value_table_size() const {
    return vocab_size * num_kv_heads * head_dim;
  }

  /// Returns the number of rotated elements of each head.
  [[nodiscard]] std::int64_t rotated_dim() const { return rotary_dim > 0 ? rotary_dim : head_dim; }

  /// Returns the number of keys that the last query of a row sees, summed over all layers.
  [[nodiscard]] std::int64_t keys_of_last_query(std::int64_t seq_len) const;
  /// Returns the number of weights. A tied embedding counts once.
  [[nodiscard]] std::int64_t num_parameters() const;
  /// Returns num_parameters() as double, for sizes that may overflow int64.
  [[nodiscard]] double num_parameters_wide() const;
  /// Returns the number of weights in routed experts.
  [[nodiscard]] double num_expert_parameters_wide() const;
  /// Returns the number of weights that `tokens` tokens use if all of them pick different experts.
  [[nodiscard]] std::int64_t num_active_parameters(std::int64_t tokens = 1) const;
  /// Returns the training FLOPs per token: 6 * matmul weights in use + 12 * layers * heads *
  /// head_dim * seq_len. Attention is not halved for causality, and recomputation is not counted.
  /// Frozen weights count 4 times, because they have no gradient.
  /// Source: Chowdhery et al., "PaLM", 2022, appendix B.
  [[nodiscard]] double flops_per_token(std::int64_t seq_len,
                                       const TrainedParts& trained = {}) const;
};

/// Returns the values of a preset. head_dim, intermediate_size and vocab_size stay 0, because
/// resolve() derives them. Throws Error(usage) that lists the known presets and the nearest one.
ModelConfig model_preset(std::string_view name);
std::vector<std::string> model_preset_names();

/// Returns the preset with the same sizes and rules as a resolved config; vocabulary, longest
/// position and dropout are not compared. Returns "" if there is none.
std::string matching_preset(const ModelConfig& config);

/// A value of model.activation with its name in Hugging Face.
struct ActivationName {
  std::string name;
  std::string hf_name;
};

std::vector<ActivationName> activation_names();

/// Reports invalid values, before the tokenizer's size and the start checkpoint are known.
void check(ModelConfig config, Problems& problems);

/// Derives all sizes that are 0 from the preset, the tokenizer's size and the rules above, then
/// checks every value. Throws Error(usage) with all problems, one per line. Without preset and
/// sizes, the error lists the presets.
void resolve(ModelConfig& config, std::int64_t tokenizer_vocab_size);

}  // namespace trireme::model
