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

/// The shape of a transformer. Covers MiniMind V3 (Qwen3: QK norm, GQA, gated MLP, RoPE, RMSNorm,
/// tied embedding), MiniMind V2 and Llama. A size of 0 is derived by resolve(). Source of presets
/// and MLP widths: jingyaogong/minimind, commits 7da201a (V2) and d65ef2c (V3).
struct ModelConfig {
  std::string preset;  // "": hidden_size, num_layers and num_heads are given
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
  std::string activation = "silu";  // value for checkpoints that do not store it
  double rope_theta = 1e6;
  std::string rope_scaling;  // see parse_rope_scaling; "": none
  double norm_eps = 1e-6;
  double dropout = 0.0;            // embedding, residual and MLP outputs
  double attention_dropout = 0.0;  // plain attention path only
  MoeConfig moe;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("preset", self.preset,
          "named shape: tiny, minimind-3, minimind-3-moe, minimind-2-small, minimind-2, "
          "minimind-2-moe, minimind-1024x16, gpt-1.7b, gpt-7.1b, gpt-16b, gpt-32b, gpt-70b, "
          "gpt-119b, gpt-177b, gpt-314b, gpt-462b; empty: use the start checkpoint or the sizes "
          "below");
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
    visit("activation", self.activation, "activation function of the MLP gate");
    visit("rope_theta", self.rope_theta, "base of the rotary frequencies");
    visit(
        "rope_scaling", self.rope_scaling,
        "RoPE scaling for longer texts: yarn,factor=F,original_max_position_embeddings=N or "
        "llama3,factor=F,original_max_position_embeddings=N, plus optional values as in transformers");
    visit("norm_eps", self.norm_eps, "epsilon of every RMSNorm");
    visit("dropout", self.dropout,
          "dropout probability on embedding, residual and MLP outputs, in [0, 1)");
    visit("attention_dropout", self.attention_dropout,
          "dropout probability on attention weights, plain path only, in [0, 1)");
    MoeConfig::fields(self.moe, visit);
  }

  /// Returns which keys each query sees, for these document boundaries. Kernels and costs use it.
  [[nodiscard]] ops::AttentionSetup attention_setup(ops::RowBounds bounds = {}) const;
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
  /// Source: Chowdhery et al., "PaLM", 2022, appendix B.
  [[nodiscard]] double flops_per_token(std::int64_t seq_len) const;
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
