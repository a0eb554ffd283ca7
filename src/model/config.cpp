#include "model/config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/problems.hpp"
#include "model/depth_rule.hpp"
#include "model/option_checks.hpp"
#include "model/preset_options.hpp"
#include "model/stream_options.hpp"
#include "ops/activations.hpp"

namespace trireme::model {
namespace {

enum class FfnRule { eight_thirds, pi, four };

struct Preset {
  std::string_view name;
  FfnRule rule;
  std::int64_t hidden_size, num_layers, num_heads, num_kv_heads;
  bool qk_norm;
  double norm_eps;
  MoeConfig moe = {};
  bool tie_embeddings = true;
  void (*set_options)(ModelConfig& config) = nullptr;
};

/// The GPT models of Megatron-LM (README of release 0.8) with the block of Trireme. A gated MLP of
/// width 8/3 h has as many weights as the ungated MLP of Megatron-LM, of width 4 h. The embedding
/// is not tied.
Preset gpt(std::string_view name, std::int64_t hidden_size, std::int64_t num_layers,
           std::int64_t num_heads) {
  return {
      name, FfnRule::eight_thirds, hidden_size, num_layers, num_heads, num_heads, false, 1e-5, {},
      false};
}

// The experts of MiniMind V3 and V2.5. V3 balances the load over a micro-batch.
const MoeConfig kExpertsOfV3{.num_experts = 4,
                             .num_experts_per_tok = 1,
                             .router_aux_loss = "micro_batch",
                             .router_aux_loss_coef = 5e-4};
const MoeConfig kExpertsOfV2{.num_experts = 4,
                             .num_experts_per_tok = 2,
                             .num_shared_experts = 1,
                             .router_aux_loss_coef = 0.01};

// Sizes derived from hidden_size stay 0 here, so that they follow a different hidden_size.
const std::array<Preset, 19> kPresets{{
    {"tiny", FfnRule::pi, 128, 4, 4, 2, true, 1e-6},
    {"minimind-3", FfnRule::pi, 768, 8, 8, 4, true, 1e-6},
    {"minimind-3-moe", FfnRule::pi, 768, 8, 8, 4, true, 1e-6, kExpertsOfV3},
    {"minimind-2-small", FfnRule::eight_thirds, 512, 8, 8, 2, false, 1e-5},
    {"minimind-2", FfnRule::eight_thirds, 768, 16, 8, 2, false, 1e-5},
    {"minimind-2-moe", FfnRule::eight_thirds, 640, 8, 8, 2, false, 1e-5, kExpertsOfV2},
    {"minimind-1024x16", FfnRule::eight_thirds, 1024, 16, 8, 2, false, 1e-5},
    gpt("gpt-1.7b", 2048, 24, 16),
    gpt("gpt-7.1b", 4096, 30, 32),
    gpt("gpt-16b", 6144, 32, 48),
    gpt("gpt-32b", 7168, 48, 56),
    gpt("gpt-70b", 8192, 84, 64),
    gpt("gpt-119b", 10240, 92, 80),
    gpt("gpt-177b", 12288, 96, 96),
    gpt("gpt-314b", 16384, 96, 128),
    gpt("gpt-462b", 18432, 112, 144),
    {"gpt2-124m", FfnRule::four, 768, 12, 12, 12, false, 1e-5, {}, true, set_gpt2},
    {"nanogpt-11", FfnRule::four, 768, 12, 6, 6, true, 1e-6, {}, false, set_nanogpt},
    {"nanochat", FfnRule::four, 0, 0, 0, 0, true, 1e-6, {}, false, set_nanochat},
}};

const Preset* find_preset(std::string_view name) {
  const auto* const found = std::find_if(kPresets.begin(), kPresets.end(),
                                         [&](const Preset& p) { return p.name == name; });
  return found == kPresets.end() ? nullptr : found;
}

const Preset& preset_or_fail(const std::string& name) {
  if (const Preset* preset = find_preset(name)) return *preset;
  Problems problems;
  problems.one_of("model.preset", name, model_preset_names());
  problems.throw_if_any();
  return kPresets.front();  // not reached
}

/// Returns the MLP width, rounded up to a multiple of 64: int(8 h / 3) in MiniMind V2, pi h in V3.
std::int64_t ffn_width(FfnRule rule, std::int64_t hidden_size) {
  if (rule == FfnRule::pi) {
    return static_cast<std::int64_t>(
               std::ceil(static_cast<double>(hidden_size) * std::numbers::pi / 64.0)) *
           64;
  }
  if (rule == FfnRule::four) return 4 * hidden_size;
  return (hidden_size * 8 / 3 + 63) / 64 * 64;
}

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

std::string within(std::int64_t low, const std::string& meaning = "") {
  return formatted("must be in [{}{}, {}]", low, meaning, kMaxSize);
}

/// If `may_lack` is true, a size may be 0, because a checkpoint may still provide it.
void check_sizes(const ModelConfig& config, Problems& problems, bool may_lack = false) {
  const auto size = [&](const char* key, std::int64_t value) {
    if (value == 0 && may_lack) return;
    if (value < 1 || value > kMaxSize) problems.add(formatted("model.{}", key), value, within(1));
  };
  size("hidden_size", config.hidden_size);
  size("num_layers", config.num_layers);
  size("num_heads", config.num_heads);
  size("num_kv_heads", config.num_kv_heads);
  size("head_dim", config.head_dim);
  size("intermediate_size", config.intermediate_size);
  size("max_seq_len", config.max_seq_len);
}

void check_values(const ModelConfig& config, Problems& problems) {
  const bool heads = config.num_heads >= 1 && config.num_kv_heads >= 1;
  if (heads && config.num_heads % config.num_kv_heads != 0) {
    problems.add("model.num_kv_heads", config.num_kv_heads,
                 formatted("must divide model.num_heads = {}", config.num_heads));
  }
  if (config.head_dim % 2 != 0) {
    problems.add(
        "model.head_dim", config.head_dim,
        "must be even, because rotary embedding rotates pairs (set model.head_dim if hidden_size "
        "/ num_heads is odd)");
  }
  const auto above_0 = [&](const char* key, double value) {
    if (!std::isfinite(value) || value <= 0) problems.add(key, value, "must be above 0");
  };
  above_0("model.rope_theta", config.rope_theta);
  above_0("model.norm_eps", config.norm_eps);
  above_0("model.embedding_scale", config.embedding_scale);
  above_0("model.qk_scale", config.qk_scale);
  check_options(config, problems);
  check_stream_options(config, problems);
  const auto probability = [&](const char* key, double value) {
    if (!(value >= 0 && value < 1)) problems.add(key, value, "must be in [0, 1)");
  };
  probability("model.dropout", config.dropout);
  probability("model.attention_dropout", config.attention_dropout);
  std::vector<std::string> activations;
  for (const ActivationName& one : activation_names()) activations.push_back(one.name);
  problems.one_of("model.activation", config.activation, activations);
  check(config.moe, config.num_layers, problems);
}

void check_vocabulary(std::int64_t size, std::int64_t tokenizer_size, Problems& problems) {
  if (size == 0) {
    problems.add("model.vocab_size", size,
                 "and there is no tokenizer to take it from: set model.vocab_size");
  } else if (tokenizer_size > 0 && size < tokenizer_size) {
    problems.add("model.vocab_size", size, within(tokenizer_size, " (the tokenizer's size)"));
  } else if (size < 0 || size > kMaxSize) {
    problems.add("model.vocab_size", size, within(1));
  }
}

/// Counts the parameters with only `experts` routed experts in each layer.
template <class Number>
Number count_parameters(const ModelConfig& config, std::int64_t experts) {
  const auto H = static_cast<Number>(config.hidden_size);
  const auto D = static_cast<Number>(config.head_dim);
  const auto ffn = static_cast<Number>(config.intermediate_size);
  const auto norm = static_cast<Number>(config.norm_size());
  const auto inputs = static_cast<Number>(config.mlp_inputs());
  const auto V = static_cast<Number>(config.vocab_size);
  TRIREME_ASSERT(D > 0 && ffn > 0 && V > 0);  // resolve() has set these sizes
  const auto heads = static_cast<Number>(config.num_heads + config.num_kv_heads);
  const auto of = [](bool has, Number count) { return has ? count : Number{0}; };
  const auto queries = static_cast<Number>(config.num_heads) * D;
  const Number qk_norms =
      config.norm_gain && config.qk_norm ? (config.qk_norm_whole ? heads * D : 2 * D) : Number{0};
  const Number attention = 2 * H * D * heads + qk_norms +
                           of(config.qkv_bias, 2 * heads * D - queries) +
                           of(config.attention_output_bias, H) + of(config.post_norms, 2 * norm);
  const MoeConfig& moe = config.moe;
  const auto with_experts = static_cast<Number>(moe.layers_with_experts(config.num_layers));
  const auto dense = static_cast<Number>(config.num_layers) - with_experts;
  const Number of_moe =
      static_cast<Number>(moe.num_experts) * (H + (moe.has_bias() ? 1 : 0)) +
      3 * H *
          (static_cast<Number>(experts) * static_cast<Number>(moe.moe_intermediate_size) +
           static_cast<Number>(moe.shared_width()));
  return V * H * (config.tie_embeddings ? 1 : 2) +
         static_cast<Number>(config.num_layers) * (attention + of(config.pre_norms, 2 * norm)) +
         dense * ((inputs + 1) * H * ffn + of(config.mlp_bias, inputs * ffn + H)) +
         with_experts * of_moe + norm +
         of(config.learned_positions(), static_cast<Number>(config.max_seq_len) * H) +
         static_cast<Number>(num_stream_parameters(config));
}

/// Derives sizes that are 0 from the preset, if there is one, and from other sizes.
void fill(ModelConfig& config, const Preset* preset) {
  const auto fill_one = [](std::int64_t& size, std::int64_t value) {
    if (size == 0) size = value;
  };
  if (config.depth > 0 && config.depth <= DepthRule::kMaxDepth) {
    fill_one(config.num_layers, config.depth);
    fill_one(config.hidden_size, DepthRule::hidden_size(config.depth));
    fill_one(config.num_heads, DepthRule::num_heads(config.hidden_size));
    fill_one(config.num_kv_heads, config.num_heads);
  }
  if (preset != nullptr) {
    fill_one(config.hidden_size, preset->hidden_size);
    fill_one(config.num_layers, preset->num_layers);
    fill_one(config.num_heads, preset->num_heads);
  }
  if (config.softcap > 0 && config.logit_softcap == 0)
    config.logit_softcap = std::exchange(config.softcap, 0);
  if (config.softcap == config.logit_softcap) config.softcap = 0;
  if (!config.window_pattern.empty())
    fill_one(config.short_window,
             std::min((config.max_seq_len / 4 + 127) / 128 * 128, config.max_seq_len));
  fill_one(config.num_kv_heads, preset != nullptr ? preset->num_kv_heads : config.num_heads);
  if (config.head_dim == 0 && config.num_heads > 0)
    config.head_dim = config.hidden_size / config.num_heads;
  if (config.hidden_size > 0 && config.hidden_size <= kMaxSize)
    fill_one(config.intermediate_size,
             ffn_width(preset != nullptr ? preset->rule : FfnRule::pi, config.hidden_size));
  if (config.moe.on()) fill_one(config.moe.moe_intermediate_size, config.intermediate_size);
}

/// Throws Error(usage) if the config has neither a preset nor the sizes that a preset would give.
void check_has_shape(const ModelConfig& config) {
  if (!config.preset.empty()) return;
  std::vector<std::string> lacking;
  const auto size = [&](const char* key, std::int64_t value) {
    if (value == 0) lacking.push_back(formatted("model.{}", key));
  };
  size("hidden_size", config.hidden_size);
  size("num_layers", config.num_layers);
  size("num_heads", config.num_heads);
  if (lacking.empty()) return;
  fail(
      ErrorKind::usage,
      "the model has no shape: give --model.preset ({}), or a checkpoint to start from (--resume, --init), or {}",
      joined(model_preset_names(), ", "), joined(lacking, ", "));
}

}  // namespace

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

std::vector<ActivationName> activation_names() {
  std::vector<ActivationName> names;
  for (const ops::ActivationNames& row : ops::AllActivations::names)
    names.push_back({std::string(row.name), std::string(row.hf_name)});
  return names;
}

ModelConfig model_preset(std::string_view name) {
  const Preset& preset = preset_or_fail(std::string(name));
  ModelConfig config;
  config.preset = preset.name;
  config.hidden_size = preset.hidden_size;
  config.num_layers = preset.num_layers;
  config.num_heads = preset.num_heads;
  config.num_kv_heads = preset.num_kv_heads;
  config.qk_norm = preset.qk_norm;
  config.norm_eps = preset.norm_eps;
  config.tie_embeddings = preset.tie_embeddings;
  config.rope_theta = 1e6;
  config.moe = preset.moe;
  if (preset.set_options != nullptr) preset.set_options(config);
  return config;
}

std::string matching_preset(const ModelConfig& config) {
  const auto shape_of = [](const ModelConfig& c) {
    return std::tuple(
        c.hidden_size, c.num_layers, c.num_heads, c.num_kv_heads, c.head_dim, c.intermediate_size,
        c.tie_embeddings, c.qk_norm, c.activation, c.rope_theta, c.rope_scaling, c.norm_eps,
        c.moe.on() ? c.moe : MoeConfig{}, c.qkv_bias, c.attention_output_bias, c.mlp_bias,
        c.post_norms, c.sliding_window, c.full_attention_layers, c.attention_scale_dim,
        c.embedding_scale, c.local_rope_theta, c.rotary_dim, c.no_rope_layers, c.qk_norm_whole,
        c.pre_norms, c.attention_softcap, c.logit_softcap, c.window_pattern, c.short_window,
        c.norm_gain, c.embed_norm, c.qk_scale, c.init, c.zero_projections, c.residual_scalars,
        c.skips, c.backout, c.smear, c.value_embeddings, c.value_residual, c.norm, c.mlp,
        c.position, c.parallel_residual);
  };
  for (const Preset& preset : kPresets) {
    ModelConfig named = model_preset(preset.name);
    fill(named, &preset);
    if (shape_of(named) == shape_of(config)) return named.preset;
  }
  return "";
}

std::int64_t ModelConfig::num_parameters() const {
  return count_parameters<std::int64_t>(*this, moe.num_experts);
}

std::int64_t ModelConfig::num_active_parameters(std::int64_t tokens) const {
  const std::int64_t experts = std::min(moe.num_experts, tokens * moe.num_experts_per_tok);
  return count_parameters<std::int64_t>(*this, experts);
}

double ModelConfig::num_parameters_wide() const {
  return count_parameters<double>(*this, moe.num_experts);
}

double ModelConfig::num_expert_parameters_wide() const {
  return num_parameters_wide() - count_parameters<double>(*this, 0);
}

ops::AttentionSetup ModelConfig::attention_setup(std::int64_t layer, ops::RowBounds bounds) const {
  const std::int64_t dim = attention_scale_dim > 0 ? attention_scale_dim : head_dim;
  return {.scale = qk_scale * qk_scale / std::sqrt(static_cast<double>(dim)),
          .mask = {.window = window_of(layer)},
          .bounds = std::move(bounds),
          .softcap = attention_softcap};
}

std::int64_t ModelConfig::keys_of_last_query(std::int64_t seq_len) const {
  std::int64_t keys = 0;
  for (std::int64_t layer = 0; layer < num_layers; ++layer)
    keys += attention_setup(layer).mask.keys_of_last_query(seq_len);
  return keys;
}

double ModelConfig::flops_per_token(std::int64_t seq_len, const TrainedParts& trained) const {
  const std::int64_t embedding = vocab_size * hidden_size;
  const std::int64_t unused = trained.has_vocabulary ? 0 : embedding;
  const std::int64_t lookup_only = unused + (tie_embeddings ? 0 : embedding) +
                                   (learned_positions() ? max_seq_len * hidden_size : 0) +
                                   num_value_embeddings() * value_table_size();
  const auto matmul_weights = static_cast<double>(num_active_parameters() - lookup_only);
  const double of_each = trained.adapter_weights > 0 ? 4.0 : 6.0;
  return of_each * matmul_weights + 6.0 * static_cast<double>(trained.adapter_weights) +
         12.0 * static_cast<double>(num_heads * head_dim * keys_of_last_query(seq_len));
}

void check(ModelConfig config, Problems& problems) {
  const std::vector<std::string> names = model_preset_names();
  // An empty preset is valid here; the error for an unknown one lists the names.
  problems.one_of("model.preset", config.preset.empty() ? names.front() : config.preset, names);
  const Preset* preset = find_preset(config.preset);
  if (preset == nullptr && !config.preset.empty()) return;
  const bool derives_head_dim = config.head_dim == 0;
  fill(config, preset);
  if (!check_depth(config, derives_head_dim, problems)) return;  // the sizes follow from the depth
  check_sizes(config, problems, /*may_lack=*/preset == nullptr);
  check_values(config, problems);
  if (config.vocab_size != 0) check_vocabulary(config.vocab_size, 0, problems);
}

void resolve(ModelConfig& config, std::int64_t tokenizer_vocab_size) {
  check_has_shape(config);
  const bool derives_head_dim = config.head_dim == 0;
  fill(config, config.preset.empty() ? nullptr : &preset_or_fail(config.preset));
  if (config.vocab_size == 0) config.vocab_size = tokenizer_vocab_size;
  Problems problems;
  if (!check_depth(config, derives_head_dim, problems)) problems.throw_if_any();
  check_sizes(config, problems);
  check_values(config, problems);
  check_vocabulary(config.vocab_size, tokenizer_vocab_size, problems);
  problems.throw_if_any();
}

}  // namespace trireme::model
