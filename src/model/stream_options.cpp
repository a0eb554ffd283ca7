#include "model/stream_options.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/problems.hpp"
#include "model/layer_list.hpp"
#include "model/residual_terms.hpp"

namespace trireme::model {
namespace {

/// Checks windows that are given by a pattern.
void check_window_pattern(const ModelConfig& config, Problems& problems) {
  const std::string& pattern = config.window_pattern;
  if (pattern.find_first_not_of("SL") != std::string::npos)
    problems.add("model.window_pattern", pattern, "must have only the letters S and L: SSSL");
  if (!pattern.empty() && !config.full_attention_layers.empty())
    problems.add(
        "model.window_pattern", pattern,
        "cannot be combined with model.full_attention_layers: the letters L are its layers");
  if (config.short_window < 0 || config.short_window > config.max_seq_len)
    problems.add("model.short_window", config.short_window,
                 formatted("must be in [0, model.max_seq_len = {}]", config.max_seq_len));
  if (pattern.empty() && config.short_window > 0)
    problems.add("model.short_window", config.short_window, "needs model.window_pattern");
}

}  // namespace

void check_layers(const char* key, const std::string& text, std::int64_t num_layers,
                  Problems& problems) {
  try {
    const std::vector<std::int64_t> layers = parse_layers(text);
    if (!layers.empty() && num_layers > 0 && layers.back() >= num_layers)
      problems.add(key, text, formatted("must be below model.num_layers = {}", num_layers));
  } catch (const Error& error) {
    problems.add(formatted("{}: {}", key, error.what()));
  }
}

void check_stream_options(const ModelConfig& config, Problems& problems) {
  check_window_pattern(config, problems);
  if (!config.norm_gain && config.layer_norm())
    problems.add("model.norm_gain", "false", "needs model.norm = rms");
  if (config.smear && config.learned_positions())
    problems.add("model.smear", "true", "needs model.position = rope");
  const std::vector<std::string> inits{"normal", "uniform", "linear"};
  problems.one_of("model.init", config.init, inits);
  if (config.init != "normal" && config.moe.on())
    problems.add("model.init", config.init, "is not supported for a model with experts");
  if (config.zero_projections && config.moe.on())
    problems.add("model.zero_projections", "true", "is not supported for a model with experts");
  if (!std::isfinite(config.softcap) || config.softcap < 0)
    problems.add("model.softcap", config.softcap, "must be 0 or more");
  if (config.softcap > 0 && config.logit_softcap > 0 && config.softcap != config.logit_softcap)
    problems.add("model.softcap", config.softcap,
                 formatted("is another name of model.logit_softcap = {}: set one of them",
                           config.logit_softcap));
  if (config.value_embeddings != kAlternate)
    check_layers("model.value_embeddings", config.value_embeddings, config.num_layers, problems);
}

double num_stream_parameters(const ModelConfig& config) {
  std::int64_t scalars = 0;
  for (std::int64_t layer = 0; has_residual_terms(config) && layer <= config.num_layers; ++layer)
    for (const ResidualTerm& term : residual_terms(config, layer))
      scalars += term.scale_name != nullptr ? 2 : 1;
  if (config.smear) scalars += smear_gate_inputs(config) + 1;
  if (config.value_residual) scalars += config.num_layers - 1;
  const double of_head =
      static_cast<double>(config.vocab_size) * static_cast<double>(config.head_dim) +
      static_cast<double>(value_gate_inputs(config));
  return static_cast<double>(scalars) + static_cast<double>(config.num_value_embeddings()) *
                                            static_cast<double>(config.num_kv_heads) * of_head;
}

std::int64_t ModelConfig::window_of(std::int64_t layer) const {
  if (!window_pattern.empty()) return has_window(layer) ? short_window : sliding_window;
  return has_window(layer) ? sliding_window : 0;
}

bool ModelConfig::has_window(std::int64_t layer) const {
  if (!window_pattern.empty()) {
    const auto at = static_cast<std::size_t>(layer) % window_pattern.size();
    return window_pattern[at] == 'S' && layer + 1 < num_layers;
  }
  if (sliding_window == 0) return false;
  const std::vector<std::int64_t> full = parse_layers(full_attention_layers);
  return !std::binary_search(full.begin(), full.end(), layer);
}

bool ModelConfig::has_value_embedding(std::int64_t layer) const {
  if (value_embeddings == kAlternate) return layer % 2 == (num_layers - 1) % 2;
  const std::vector<std::int64_t> layers = parse_layers(value_embeddings);
  return std::binary_search(layers.begin(), layers.end(), layer);
}

std::int64_t ModelConfig::num_value_embeddings() const {
  if (value_embeddings == kAlternate) return (num_layers + 1) / 2;
  return std::ssize(parse_layers(value_embeddings));
}

bool ModelConfig::has_rope(std::int64_t layer) const {
  if (learned_positions()) return false;
  const std::vector<std::int64_t> without = parse_layers(no_rope_layers);
  return !std::binary_search(without.begin(), without.end(), layer);
}

std::vector<ops::AttentionMask> ModelConfig::attention_masks() const {
  std::vector<ops::AttentionMask> masks;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    const ops::AttentionMask mask = attention_setup(layer).mask;
    if (std::ranges::find(masks, mask) == masks.end()) masks.push_back(mask);
  }
  return masks;
}

}  // namespace trireme::model
