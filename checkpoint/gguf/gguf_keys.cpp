#include "checkpoint/gguf/gguf_keys.hpp"

#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

/// Adds keys that begin with the name of the architecture.
class ShapeKeys {
 public:
  ShapeKeys(std::string_view architecture, GgufValues& values)
      : architecture_(architecture), values_(values) {}

  void number(std::string_view key, std::int64_t value) {
    values_.number(name(key), static_cast<std::uint32_t>(value));
  }

  void real(std::string_view key, double value) { values_.real(name(key), value); }

  void flag(std::string_view key, bool value) { values_.flag(name(key), value); }

  void text(std::string_view key, std::string_view value) { values_.text(name(key), value); }

 private:
  [[nodiscard]] std::string name(std::string_view key) const {
    return formatted("{}.{}", architecture_, key);
  }

  std::string_view architecture_;
  GgufValues& values_;
};

void put_rope(const model::ModelConfig& config, ShapeKeys& keys) {
  keys.number("rope.dimension_count", config.rotated_dim());
  keys.real("rope.freq_base", config.rope_theta);
  const model::RopeScaling scaling = model::parse_rope_scaling(config.rope_scaling);
  if (scaling.kind == model::RopeScaling::Kind::linear) {
    keys.text("rope.scaling.type", "linear");
    keys.real("rope.scaling.factor", scaling.factor);
  }
  if (scaling.kind == model::RopeScaling::Kind::longrope) {
    keys.number("rope.scaling.original_context_length", scaling.original_max);
    keys.real("rope.scaling.attn_factor", scaling.attention_factor);
  }
}

void put_experts(const model::MoeConfig& moe, bool needs_experts, ShapeKeys& keys) {
  if (!moe.on()) return;
  keys.number("expert_count", moe.num_experts);
  keys.number("expert_used_count", moe.num_experts_per_tok);
  if (needs_experts) keys.number("expert_feed_forward_length", moe.moe_intermediate_size);
}

}  // namespace

void put_gguf_shape(const model::ModelConfig& config, const GgufArchitecture& architecture,
                    GgufValues& values) {
  ShapeKeys keys(architecture.name, values);
  keys.number("vocab_size", config.vocab_size);
  keys.number("context_length", gguf_context_length(config, architecture));
  keys.number("embedding_length", config.hidden_size);
  keys.number("block_count", config.num_layers);
  keys.number("feed_forward_length", config.moe.on() && !architecture.needs_experts
                                         ? config.moe.moe_intermediate_size
                                         : config.intermediate_size);
  keys.number("attention.head_count", config.num_heads);
  keys.number("attention.head_count_kv", config.num_kv_heads);
  keys.number("attention.key_length", config.head_dim);
  keys.number("attention.value_length", config.head_dim);
  keys.real(
      config.layer_norm() ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      config.norm_eps);
  if (architecture.window_period > 0 || architecture.window_key)
    keys.number("attention.sliding_window", config.sliding_window);
  if (architecture.softcaps) {
    keys.real("attn_logit_softcapping", config.attention_softcap);
    keys.real("final_logit_softcapping", config.logit_softcap);
  }
  if (has_gguf_option(architecture, "parallel_residual"))
    keys.flag("use_parallel_residual", config.parallel_residual);
  put_experts(config.moe, architecture.needs_experts, keys);
  if (!config.learned_positions()) put_rope(config, keys);
}

}  // namespace trireme::checkpoint
