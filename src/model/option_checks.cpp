#include "model/option_checks.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/problems.hpp"
#include "model/layer_list.hpp"
#include "model/rope_scaling.hpp"
#include "model/stream_options.hpp"

namespace trireme::model {
namespace {

void check_rope(const ModelConfig& config, Problems& problems) {
  try {
    const RopeScaling scaling = parse_rope_scaling(config.rope_scaling);
    if (config.head_dim > 0) check_fits(scaling, config.rotated_dim(), config.max_seq_len);
  } catch (const Error& error) {
    problems.add(error.what());
  }
  const std::int64_t rotated = config.rotary_dim;
  const bool too_large = config.head_dim > 0 && rotated > config.head_dim;
  if (rotated < 0 || rotated % 2 != 0 || too_large)
    problems.add("model.rotary_dim", rotated,
                 formatted("must be even and in [0, model.head_dim = {}]", config.head_dim));
  if (!std::isfinite(config.local_rope_theta) || config.local_rope_theta < 0)
    problems.add("model.local_rope_theta", config.local_rope_theta, "must be 0 or more");
  if (config.local_rope_theta > 0 && config.sliding_window == 0 && config.window_pattern.empty())
    problems.add("model.local_rope_theta", config.local_rope_theta,
                 "needs layers with a window: set model.sliding_window");
}

/// Reports settings of the rotary embedding of a model that has none.
void check_without_rope(const ModelConfig& config, Problems& problems) {
  const auto unused = [&](const char* key, bool is_set, auto value) {
    if (is_set) problems.add(key, value, "needs a rotary embedding: set model.position = rope");
  };
  unused("model.rope_scaling", !config.rope_scaling.empty(), config.rope_scaling);
  unused("model.rotary_dim", config.rotary_dim > 0, config.rotary_dim);
  unused("model.local_rope_theta", config.local_rope_theta > 0, config.local_rope_theta);
  unused("model.no_rope_layers", !config.no_rope_layers.empty(), config.no_rope_layers);
}

}  // namespace

void check_options(const ModelConfig& config, Problems& problems) {
  check_rope(config, problems);
  const auto not_negative = [&](const char* key, auto value) {
    if (!std::isfinite(static_cast<double>(value)) || value < 0)
      problems.add(key, value, "must be 0 or more");
  };
  not_negative("model.attention_softcap", config.attention_softcap);
  not_negative("model.logit_softcap", config.logit_softcap);
  not_negative("model.sliding_window", config.sliding_window);
  not_negative("model.attention_scale_dim", config.attention_scale_dim);
  const auto one_of = [&](const char* key, const std::string& value, const char* first,
                          const char* second) {
    problems.one_of(key, value, std::vector<std::string>{first, second});
  };
  one_of("model.norm", config.norm, "rms", "layer");
  one_of("model.mlp", config.mlp, "gated", "plain");
  one_of("model.position", config.position, "rope", "learned");
  check_layers("model.full_attention_layers", config.full_attention_layers, config.num_layers,
               problems);
  check_layers("model.no_rope_layers", config.no_rope_layers, config.num_layers, problems);
  if (config.sliding_window == 0 && !config.full_attention_layers.empty())
    problems.add("model.full_attention_layers", config.full_attention_layers,
                 "needs a window in the other layers: set model.sliding_window");
  if (!config.pre_norms && !config.post_norms)
    problems.add("model.pre_norms", "false", "needs norms of outputs: set model.post_norms");
  if (!config.pre_norms && config.moe.on())
    problems.add("model.pre_norms", "false", "is not supported for a model with experts");
  if (config.qk_norm_whole && !config.qk_norm)
    problems.add("model.qk_norm_whole", "true", "needs model.qk_norm = true");
  if (config.mlp_bias && config.moe.on())
    problems.add("model.mlp_bias", "true", "is not supported for a model with experts");
  if (!config.gated_mlp() && config.moe.on())
    problems.add("model.mlp", config.mlp, "is not supported for a model with experts");
  if (config.parallel_residual && !config.pre_norms)
    problems.add("model.parallel_residual", "true", "needs model.pre_norms = true");
  if (config.learned_positions()) check_without_rope(config, problems);
}

}  // namespace trireme::model
