#include <array>
#include <map>
#include <optional>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/hf/hf_family.hpp"
#include "core/join.hpp"

/// Explains why no family can express a model.
namespace trireme::checkpoint {
namespace {

using Reset = void (*)(model::ModelConfig& config);

/// Each row sets one option, or options that need each other, to the values of a plain model. The
/// first rows are options that some family has only together with later ones.
constexpr std::array<Reset, 37> kResets{{
    [](model::ModelConfig& c) {
      c.window_pattern.clear();
      c.short_window = 0;
      c.local_rope_theta = 0;
    },
    [](model::ModelConfig& c) { c.norm_gain = true; },
    [](model::ModelConfig& c) { c.embed_norm = false; },
    [](model::ModelConfig& c) { c.qk_scale = 1; },
    [](model::ModelConfig& c) { c.residual_scalars = false; },
    [](model::ModelConfig& c) { c.skips = false; },
    [](model::ModelConfig& c) { c.backout = false; },
    [](model::ModelConfig& c) { c.smear = false; },
    [](model::ModelConfig& c) { c.value_embeddings.clear(); },
    [](model::ModelConfig& c) { c.value_residual = false; },
    [](model::ModelConfig& c) { c.embedding_scale = 1; },
    [](model::ModelConfig& c) { c.pre_norms = true; },
    [](model::ModelConfig& c) {
      c.post_norms = false;
      c.pre_norms = true;
    },
    [](model::ModelConfig& c) { c.parallel_residual = false; },
    [](model::ModelConfig& c) { c.norm = "rms"; },
    [](model::ModelConfig& c) { c.mlp = "gated"; },
    [](model::ModelConfig& c) { c.position = "rope"; },
    [](model::ModelConfig& c) { c.attention_softcap = 0; },
    [](model::ModelConfig& c) { c.logit_softcap = 0; },
    [](model::ModelConfig& c) { c.attention_scale_dim = 0; },
    [](model::ModelConfig& c) { c.local_rope_theta = 0; },
    [](model::ModelConfig& c) {
      c.sliding_window = 0;
      c.full_attention_layers.clear();
      c.local_rope_theta = 0;
    },
    [](model::ModelConfig& c) { c.no_rope_layers.clear(); },
    [](model::ModelConfig& c) { c.rope_scaling.clear(); },
    [](model::ModelConfig& c) { c.rotary_dim = 0; },
    [](model::ModelConfig& c) { c.activation = "silu"; },
    [](model::ModelConfig& c) { c.qk_norm_whole = false; },
    [](model::ModelConfig& c) {
      c.qk_norm = c.moe.on();  // the plain model with experts has it
      c.qk_norm_whole = false;
    },
    [](model::ModelConfig& c) { c.moe.moe_intermediate_size = c.intermediate_size; },
    [](model::ModelConfig& c) { c.moe.norm_topk_prob = true; },
    [](model::ModelConfig& c) { c.qkv_bias = false; },
    [](model::ModelConfig& c) { c.attention_output_bias = false; },
    [](model::ModelConfig& c) { c.mlp_bias = false; },
    [](model::ModelConfig& c) { c.moe.first_dense_layers = 0; },
    [](model::ModelConfig& c) { c.moe.num_shared_experts = 0; },
    [](model::ModelConfig& c) { c.moe.router_score = "softmax"; },
    [](model::ModelConfig& c) { c.moe.router_balance = "aux"; },
}};

std::map<std::string, std::string> values_of(const model::ModelConfig& config) {
  std::map<std::string, std::string> values;
  put_model_values(config, values);
  return values;
}

/// Returns the values of the options of a row; "" if the model does not set them.
std::string values_text(const model::ModelConfig& config, Reset reset) {
  model::ModelConfig plain = config;
  reset(plain);
  const auto plain_values = values_of(plain);
  std::vector<std::string> set;
  for (const auto& [key, value] : values_of(config))
    if (plain_values.at(key) != value) set.push_back(formatted("{} = {}", key, value));
  return joined(set, " and ");
}

bool is_blocked(const model::ModelConfig& config) {
  return fitting_family(config, "") == nullptr;
}

/// Returns rows of options that the model sets and that no family has together. All other options
/// are plain, so every returned row is part of the reason.
std::vector<Reset> blocking_rows(model::ModelConfig config) {
  std::vector<Reset> rows;
  for (const Reset reset : kResets) {
    model::ModelConfig plain = config;
    reset(plain);
    if (values_of(plain) == values_of(config)) continue;
    if (is_blocked(plain))
      config = plain;
    else
      rows.push_back(reset);
  }
  return rows;
}

/// Returns the family with the fewest differences, and these differences.
std::string closest_family(const model::ModelConfig& config) {
  const Family* closest = nullptr;
  std::vector<std::string> least;
  for (const Family* family : hf_families()) {
    const auto differences = family_differences(config, *family);
    if (!differences || (closest != nullptr && differences->size() >= least.size())) continue;
    closest = family;
    least = *differences;
  }
  if (closest == nullptr) return "";
  return formatted(" (the closest, {}, cannot have {})", closest->model_type, joined(least, ", "));
}

}  // namespace

std::string hf_family_problem(const model::ModelConfig& config) {
  if (!is_blocked(config)) return "";
  std::vector<std::string> sets;
  model::ModelConfig rest = config;
  while (is_blocked(rest)) {
    const std::vector<Reset> rows = blocking_rows(rest);
    if (rows.empty()) break;
    sets.push_back(
        joined(rows, " together with ", [&](Reset reset) { return values_text(rest, reset); }));
    model::ModelConfig next = rest;
    for (const Reset reset : rows) {  // one plain option is enough if the model then fits
      next = rest;
      reset(next);
      if (!is_blocked(next)) break;
    }
    rest = next;
  }
  if (sets.empty()) sets.emplace_back("these values");
  return joined(sets, ", nor ") + closest_family(config);
}

}  // namespace trireme::checkpoint
