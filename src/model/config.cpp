#include "model/config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <sstream>

#include "core/edit_distance.hpp"
#include "core/error.hpp"
#include "core/problems.hpp"

namespace trireme {
namespace {

enum class FfnRule { eight_thirds, pi };

struct Preset {
  std::string_view name;
  FfnRule rule;
  std::int64_t hidden_size, num_layers, num_heads, num_kv_heads;
  bool qk_norm;
  double norm_eps;
};

// Sizes that follow from hidden_size stay derived, so that another hidden_size gets its own.
constexpr std::array<Preset, 5> kPresets{{
    {"tiny", FfnRule::pi, 128, 4, 4, 2, true, 1e-6},
    {"minimind-3", FfnRule::pi, 768, 8, 8, 4, true, 1e-6},
    {"minimind-2-small", FfnRule::eight_thirds, 512, 8, 8, 2, false, 1e-5},
    {"minimind-2", FfnRule::eight_thirds, 768, 16, 8, 2, false, 1e-5},
    {"minimind-1024x16", FfnRule::eight_thirds, 1024, 16, 8, 2, false, 1e-5},
}};

const Preset& find_preset(std::string_view name) {
  const auto found = std::find_if(
      kPresets.begin(), kPresets.end(), [&](const Preset& p) { return p.name == name; });
  if (found != kPresets.end()) return *found;
  std::string known;
  for (const Preset& preset : kPresets) known += cat(known.empty() ? "" : ", ", preset.name);
  fail(ErrorKind::usage,
       "model.preset = \"",
       name,
       "\", must be one of ",
       known,
       did_you_mean(name, model_preset_names()));
}

/// MLP width, rounded up to a multiple of 64: int(8 h / 3) in MiniMind V2, pi h in V3.
std::int64_t ffn_width(FfnRule rule, std::int64_t hidden_size) {
  if (rule == FfnRule::pi) {
    return static_cast<std::int64_t>(
               std::ceil(static_cast<double>(hidden_size) * std::numbers::pi / 64.0)) *
           64;
  }
  return (hidden_size * 8 / 3 + 63) / 64 * 64;
}

/// Adds a line to the problems unless `good`.
template <class... Args>
void require(Problems& problems, bool good, const Args&... args) {
  if (!good) problems.add(cat(args...));
}

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

void check_sizes(const ModelConfig& config, Problems& problems) {
  const auto check = [&](const char* key, std::int64_t value) {
    require(problems,
            value >= 1 && value <= kMaxSize,
            "model.",
            key,
            " = ",
            value,
            ", must be in [1, ",
            kMaxSize,
            "]");
  };
  check("hidden_size", config.hidden_size);
  check("num_layers", config.num_layers);
  check("num_heads", config.num_heads);
  check("num_kv_heads", config.num_kv_heads);
  check("head_dim", config.head_dim);
  check("intermediate_size", config.intermediate_size);
  check("max_seq_len", config.max_seq_len);
}

void check_values(const ModelConfig& config,
                  std::int64_t tokenizer_vocab_size,
                  Problems& problems) {
  const bool heads = config.num_heads >= 1 && config.num_kv_heads >= 1;
  require(problems,
          !heads || config.num_heads % config.num_kv_heads == 0,
          "model.num_kv_heads = ",
          config.num_kv_heads,
          ", must divide model.num_heads = ",
          config.num_heads);
  require(problems,
          config.head_dim % 2 == 0,
          "model.head_dim = ",
          config.head_dim,
          ", must be even: rotary embedding turns pairs (give model.head_dim if "
          "hidden_size / num_heads is odd)");
  if (config.vocab_size == 0) {
    require(
        problems, false, "model.vocab_size = 0 and there is no tokenizer to take it from: give it");
  } else {
    require(problems,
            config.vocab_size >= std::max<std::int64_t>(tokenizer_vocab_size, 1) &&
                config.vocab_size <= kMaxSize,
            "model.vocab_size = ",
            config.vocab_size,
            ", must be in [",
            std::max<std::int64_t>(tokenizer_vocab_size, 1),
            " (the tokenizer's size), ",
            kMaxSize,
            "]");
  }
  require(problems,
          std::isfinite(config.rope_theta) && config.rope_theta > 0,
          "model.rope_theta = ",
          config.rope_theta,
          ", must be above 0");
  require(problems,
          std::isfinite(config.norm_eps) && config.norm_eps > 0,
          "model.norm_eps = ",
          config.norm_eps,
          ", must be above 0");
  for (const auto& [key, value] : {std::pair{"dropout", config.dropout},
                                   std::pair{"attention_dropout", config.attention_dropout}}) {
    require(problems, value >= 0 && value < 1, "model.", key, " = ", value, ", must be in [0, 1)");
  }
}

}  // namespace

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

ModelConfig model_preset(std::string_view name) {
  const Preset& preset = find_preset(name);
  ModelConfig config;
  config.preset = preset.name;
  config.hidden_size = preset.hidden_size;
  config.num_layers = preset.num_layers;
  config.num_heads = preset.num_heads;
  config.num_kv_heads = preset.num_kv_heads;
  config.qk_norm = preset.qk_norm;
  config.norm_eps = preset.norm_eps;
  config.tie_embeddings = true;
  config.rope_theta = 1e6;
  return config;
}

std::int64_t ModelConfig::num_parameters() const {
  TRIREME_ASSERT(head_dim > 0 && intermediate_size > 0 && vocab_size > 0);  // resolve first
  const std::int64_t attention =
      2 * hidden_size * head_dim * (num_heads + num_kv_heads) + (qk_norm ? 2 * head_dim : 0);
  const std::int64_t mlp = 3 * hidden_size * intermediate_size;
  const std::int64_t layer = attention + mlp + 2 * hidden_size;
  const std::int64_t embedding = vocab_size * hidden_size;
  return embedding * (tie_embeddings ? 1 : 2) + num_layers * layer + hidden_size;
}

void resolve(ModelConfig& config, std::int64_t tokenizer_vocab_size) {
  const Preset& preset = find_preset(config.preset);
  const auto fill = [](std::int64_t& size, std::int64_t value) {
    if (size == 0) size = value;
  };
  fill(config.hidden_size, preset.hidden_size);
  fill(config.num_layers, preset.num_layers);
  fill(config.num_heads, preset.num_heads);
  fill(config.num_kv_heads, preset.num_kv_heads);
  if (config.head_dim == 0 && config.num_heads > 0)
    config.head_dim = config.hidden_size / config.num_heads;
  if (config.hidden_size > 0 && config.hidden_size <= kMaxSize) {
    fill(config.intermediate_size, ffn_width(preset.rule, config.hidden_size));
  }
  fill(config.vocab_size, tokenizer_vocab_size);
  Problems problems;
  check_sizes(config, problems);
  check_values(config, tokenizer_vocab_size, problems);
  problems.throw_if_any();
}

}  // namespace trireme
