#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/gguf/gguf_architecture.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "model/layer_list.hpp"

/// Compares models with the architectures of llama.cpp.
namespace trireme::checkpoint {
namespace {

/// Options that every architecture computes, or that only training reads.
constexpr std::array<std::string_view, 19> kFree{"preset",
                                                 "depth",
                                                 "hidden_size",
                                                 "num_layers",
                                                 "num_heads",
                                                 "num_kv_heads",
                                                 "head_dim",
                                                 "vocab_size",
                                                 "intermediate_size",
                                                 "max_seq_len",
                                                 "rope_theta",
                                                 "tie_embeddings",
                                                 "rope_scaling",
                                                 "sliding_window",
                                                 "norm_eps",
                                                 "dropout",
                                                 "attention_dropout",
                                                 "init",
                                                 "zero_projections"};

const GgufOption* find_option(const GgufArchitecture& architecture, std::string_view key) {
  const auto found = std::ranges::find(architecture.options, key, &GgufOption::key);
  return found == architecture.options.end() ? nullptr : &*found;
}

/// Returns the list of every `period`-th layer.
std::string every_layer(std::int64_t period, std::int64_t num_layers) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = period - 1; layer < num_layers; layer += period)
    layers.push_back(layer);
  return model::layers_text(layers);
}

/// Returns the options of layers with a window and without a rotary embedding that have another value
/// than the architecture computes.
std::vector<std::string> layer_differences(const model::ModelConfig& config,
                                           const GgufArchitecture& architecture) {
  std::vector<std::string> found;
  const auto compare = [&](std::string_view key, const std::string& own, std::int64_t period) {
    const std::string wanted = every_layer(period, config.num_layers);
    if (own != wanted)
      found.push_back(formatted("model.{} = \"{}\" instead of \"{}\"", key, own, wanted));
  };
  if (architecture.no_rope_period > 0)
    compare("no_rope_layers", config.no_rope_layers, architecture.no_rope_period);
  if (architecture.window_period == 0) return found;
  if (config.sliding_window == 0)
    found.emplace_back("model.sliding_window = 0");
  else
    compare("full_attention_layers", config.full_attention_layers, architecture.window_period);
  return found;
}

/// Returns the options of attention scores that have another value than the architecture computes.
std::vector<std::string> score_differences(const model::ModelConfig& config,
                                           const GgufArchitecture& architecture) {
  std::vector<std::string> found;
  if (architecture.square && config.head_dim * config.num_heads != config.hidden_size)
    found.push_back(formatted("model.head_dim = {} instead of model.hidden_size / model.num_heads",
                              config.head_dim));
  if (architecture.softcaps && config.attention_softcap == 0)
    found.emplace_back("model.attention_softcap = 0");
  if (architecture.softcaps && config.logit_softcap == 0)
    found.emplace_back("model.logit_softcap = 0");
  if (architecture.wide_scale_layers == 0) return found;
  const bool wide = config.num_layers == architecture.wide_scale_layers;
  const std::int64_t wanted = wide ? config.hidden_size / config.num_heads : config.head_dim;
  const std::int64_t own =
      config.attention_scale_dim > 0 ? config.attention_scale_dim : config.head_dim;
  if (own != wanted)
    found.push_back(formatted("model.attention_scale_dim = {} instead of {}", own, wanted));
  return found;
}

std::vector<std::string> expert_differences(const model::MoeConfig& moe,
                                            const GgufArchitecture& architecture) {
  std::vector<std::string> found;
  if (!moe.on()) {
    if (architecture.needs_experts) found.emplace_back("model.num_experts = 0");
    return found;
  }
  if (!architecture.experts) found.push_back(formatted("model.num_experts = {}", moe.num_experts));
  if (moe.num_shared_experts > 0)
    found.push_back(formatted("model.num_shared_experts = {}", moe.num_shared_experts));
  if (moe.first_dense_layers > 0)
    found.push_back(formatted("model.first_dense_layers = {}", moe.first_dense_layers));
  if (!moe.norm_topk_prob) found.emplace_back("model.norm_topk_prob = false");
  if (moe.router_score != "softmax")
    found.push_back(formatted("model.router_score = {}", moe.router_score));
  if (moe.has_bias()) found.emplace_back("model.router_balance = bias");
  return found;
}

/// Returns the options of the model that the architecture does not compute: "model.x = 3".
std::vector<std::string> gguf_differences(const model::ModelConfig& config,
                                          const GgufArchitecture& architecture) {
  model::ModelConfig plain;
  plain.moe = config.moe;  // expert_differences compares it
  std::map<std::string, std::string> ours;
  std::map<std::string, std::string> defaults;
  put_model_values(config, ours);
  put_model_values(plain, defaults);
  std::vector<std::string> found;
  for (const auto& [key, value] : ours) {
    const std::string_view name = std::string_view(key).substr(std::string_view("model.").size());
    const GgufOption* option = find_option(architecture, name);
    const bool fits = option != nullptr
                          ? option->values.empty() ||
                                std::ranges::find(option->values, value) != option->values.end()
                          : value == defaults[key] || std::ranges::find(kFree, name) != kFree.end();
    if (!fits) found.push_back(formatted("{} = {}", key, value.empty() ? "\"\"" : value));
  }
  std::ranges::move(layer_differences(config, architecture), std::back_inserter(found));
  std::ranges::move(score_differences(config, architecture), std::back_inserter(found));
  std::ranges::move(expert_differences(config.moe, architecture), std::back_inserter(found));
  if (config.moe.on() && config.mlp_bias) found.emplace_back("model.mlp_bias = true with experts");
  if (architecture.scaled_embedding &&
      config.embedding_scale != std::sqrt(static_cast<double>(config.hidden_size)))
    found.push_back(formatted("model.embedding_scale = {} instead of the root of model.hidden_size",
                              number_text(config.embedding_scale)));
  using enum model::RopeScaling::Kind;
  const model::RopeScaling::Kind kind = model::parse_rope_scaling(config.rope_scaling).kind;
  const bool has_kind =
      kind == none || kind == linear ||
      std::ranges::find(architecture.scalings, kind) != architecture.scalings.end();
  if (!has_kind) found.push_back(formatted("model.rope_scaling = {}", model::rope_kind_name(kind)));
  return found;
}

/// Returns the number of tokens of the longest text, as config.json of the model has it.
std::int64_t longest_text(const model::ModelConfig& config) {
  const model::RopeScaling scaling = model::parse_rope_scaling(config.rope_scaling);
  return scaling.kind == model::RopeScaling::Kind::longrope
             ? std::llround(scaling.factor * static_cast<double>(scaling.original_max))
             : config.max_seq_len;
}

}  // namespace

bool has_gguf_option(const GgufArchitecture& architecture, std::string_view key) {
  return find_option(architecture, key) != nullptr;
}

const GgufArchitecture& gguf_architecture(const model::ModelConfig& config,
                                          std::string_view preferred, const std::string& where) {
  const std::span<const GgufArchitecture> all = gguf_architectures();
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(), order.end(),
                        [&](std::size_t i) { return all[i].name == preferred; });
  const bool has_preferred = all[order.front()].name == preferred;
  std::vector<std::string> named;  // those of the preferred architecture, or the fewest
  for (const std::size_t i : order) {
    std::vector<std::string> found = gguf_differences(config, all[i]);
    if (found.empty()) return all[i];
    if (named.empty() || (!has_preferred && found.size() < named.size())) named = std::move(found);
  }
  fail(
      ErrorKind::usage,
      "{}: --format gguf: llama.cpp computes no model with {}. The architectures are {}; export with "
      "--format hf instead",
      where, joined(named, ", "), joined(all, ", ", [](const auto& row) { return row.name; }));
}

std::int64_t gguf_context_length(const model::ModelConfig& config,
                                 const GgufArchitecture& architecture) {
  const std::int64_t longest = longest_text(config);
  const bool no_window = architecture.window_period > 0 || config.sliding_window == 0;
  return no_window ? longest : std::min(longest, config.sliding_window);
}

std::vector<std::string> gguf_notes(const model::ModelConfig& config,
                                    const GgufArchitecture& architecture) {
  std::vector<std::string> notes;
  const std::int64_t length = gguf_context_length(config, architecture);
  if (length < longest_text(config))
    notes.push_back(formatted(
        "--format gguf: llama.cpp applies no sliding window in files of the architecture {}. The "
        "file has a context length of {} (model.sliding_window), and longer texts get other logits",
        architecture.name, length));
  if (config.activation == "gelu")
    notes.emplace_back(
        "--format gguf: llama.cpp computes gelu by its approximation with tanh, which differs by at "
        "most 0.0005");
  return notes;
}

}  // namespace trireme::checkpoint
