#include "train/state/resume.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

/// Sections and keys that may differ between attempts of one run. All other keys must agree.
constexpr auto kMayDiffer = std::to_array<std::string_view>({"parallel.",
                                                             "checkpoint.",
                                                             "data.",
                                                             "metrics.",
                                                             "model.preset",
                                                             "train.steps",
                                                             "train.epochs",
                                                             "train.num_samples",
                                                             "train.tokens_per_param",
                                                             "train.micro_batch",
                                                             "train.accumulation",
                                                             "train.device",
                                                             "train.log_every",
                                                             "train.metrics_every",
                                                             "train.eval_every",
                                                             "train.patience",
                                                             "train.eval_ema",
                                                             "train.threads",
                                                             "train.comm_timeout_s",
                                                             "train.start_timeout_s",
                                                             "train.max_skipped_steps",
                                                             "train.hash_weights_every",
                                                             "train.late_results",
                                                             "train.cuda_graph",
                                                             "train.deterministic",
                                                             "train.profile",
                                                             "rl.reward_timeout_s",
                                                             "rl.keep_rollouts",
                                                             "rl.cuda_graph"});

struct LaterKey {
  std::string_view key;
  std::string_view before;
};

/// Keys that were added after version 0.1, with the value that older checkpoints were trained with.
constexpr auto kLaterKeys = std::to_array<LaterKey>({{"train.fp8", "off"},
                                                     {"data.valid_tokens", "0"},
                                                     {"train.tokens_per_param", "0"},
                                                     {"train.ema_decay", "0"},
                                                     {"data.batch_phases", ""},
                                                     {"optim.decay_steps", "-1"},
                                                     {"optim.decay_shape", "linear"},
                                                     {"optim.points", ""},
                                                     {"model.activation", "silu"},
                                                     {"dpo.score", "all"},
                                                     {"dpo.gamma", "1"},
                                                     {"model.rope_scaling", ""},
                                                     {"model.qkv_bias", "false"},
                                                     {"model.attention_output_bias", "false"},
                                                     {"model.mlp_bias", "false"},
                                                     {"model.post_norms", "false"},
                                                     {"model.pre_norms", "true"},
                                                     {"model.qk_norm_whole", "false"},
                                                     {"model.attention_softcap", "0"},
                                                     {"model.logit_softcap", "0"},
                                                     {"model.norm", "rms"},
                                                     {"model.mlp", "gated"},
                                                     {"model.position", "rope"},
                                                     {"model.parallel_residual", "false"},
                                                     {"model.sliding_window", "0"},
                                                     {"model.full_attention_layers", ""},
                                                     {"model.attention_scale_dim", "0"},
                                                     {"model.embedding_scale", "1"},
                                                     {"model.local_rope_theta", "0"},
                                                     {"model.rotary_dim", "0"},
                                                     {"model.no_rope_layers", ""},
                                                     {"model.window_pattern", ""},
                                                     {"model.short_window", "0"},
                                                     {"model.depth", "0"},
                                                     {"model.norm_gain", "true"},
                                                     {"model.embed_norm", "false"},
                                                     {"model.qk_scale", "1"},
                                                     {"model.softcap", "0"},
                                                     {"model.init", "normal"},
                                                     {"model.zero_projections", "false"},
                                                     {"model.residual_scalars", "false"},
                                                     {"model.skips", "false"},
                                                     {"model.backout", "false"},
                                                     {"model.smear", "false"},
                                                     {"model.value_embeddings", ""},
                                                     {"model.value_residual", "false"},
                                                     {"train.window_schedule", ""},
                                                     {"optim.value_lr", "-1"},
                                                     {"optim.momentum_final", "-1"},
                                                     {"optim.row_equalize", "false"},
                                                     {"optim.renormalize", "false"},
                                                     {"optim.decay_schedule", "constant"},
                                                     {"optim.groups", ""},
                                                     {"parallel.local_steps", "1"},
                                                     {"lora.rank", "0"},
                                                     {"model.num_experts", "0"},
                                                     {"model.num_experts_per_tok", "2"},
                                                     {"model.moe_intermediate_size", "0"},
                                                     {"model.num_shared_experts", "0"},
                                                     {"model.first_dense_layers", "0"},
                                                     {"model.norm_topk_prob", "true"},
                                                     {"model.router_score", "softmax"},
                                                     {"model.router_balance", "aux"},
                                                     {"model.router_aux_loss", "sequence"},
                                                     {"model.router_aux_loss_coef", "0.001"},
                                                     {"model.router_bias_rate", "0.001"}});

/// Returns true if both texts are equal or stand for the same number.
bool is_equal(const std::string& one, const std::string& other) {
  if (one == other) return true;
  const auto number = parse_number(one);
  return number && number == parse_number(other);
}

}  // namespace

std::optional<std::string> value_of_older_versions(std::string_view key) {
  for (const LaterKey& later : kLaterKeys) {
    if (later.key == key) return std::string(later.before);
  }
  return std::nullopt;
}

bool may_differ(const std::string& key) {
  // These keys change the training, not only the layout or the source of the data.
  if (key == "parallel.local_steps" || key == "data.batch_phases") return false;
  return std::any_of(kMayDiffer.begin(), kMayDiffer.end(), [&](std::string_view one) {
    return one.back() == '.' ? key.starts_with(one) : key == one;
  });
}

std::vector<ChangedKey> changed_keys(const RunValues& values, const config::ConfigSet& config) {
  std::vector<ChangedKey> changes;
  for (const std::string& key : config.keys()) {
    auto before = values.configured(key);
    const auto shape = values.model.find(key);  // a checkpoint of weights only holds model keys
    if (!before)
      before = shape != values.model.end() ? shape->second : value_of_older_versions(key);
    if (!before || key.starts_with("checkpoint.")) continue;
    const std::string now = config.value(key);
    if (!is_equal(*before, now)) changes.push_back({key, *before, now});
  }
  return changes;
}

std::string changes_text(const std::vector<ChangedKey>& changes) {
  const auto shown = [](const std::string& value) { return value.empty() ? "''" : value; };
  return joined(changes, ", ", [&](const ChangedKey& change) {
    return formatted("{} {} -> {}", change.key, shown(change.was), shown(change.now));
  });
}

RunValues::Texts config_texts(const config::ConfigSet& config) {
  RunValues::Texts texts;
  for (const std::string& key : config.keys()) texts[key] = config.value(key);
  return texts;
}

void check_same_run(const RunValues& values, const config::ConfigSet& config,
                    const std::string& checkpoint) {
  std::string differences;
  bool other_optimizer = false;
  for (const ChangedKey& change : changed_keys(values, config)) {
    if (may_differ(change.key)) continue;
    if (change.key == "optim.name") other_optimizer = true;
    differences += formatted("\n  {} = {} ({}), the checkpoint has {}", change.key, change.now,
                             config.origin(change.key), change.was);
  }
  if (other_optimizer) {
    fail(
        ErrorKind::usage,
        "this configuration does not continue {}:{}\nLeave out these keys to resume with the checkpoint's values. An optimizer cannot use the state of another one, but a new run can start from the weights: give --init {}, --data and another --run.",
        checkpoint, differences, checkpoint);
  }
  if (!differences.empty()) {
    fail(
        ErrorKind::usage,
        "this configuration does not continue {}:{}\nLeave out these keys to resume with the checkpoint's values. To start from this checkpoint with other values, give --resume {} and another --run.",
        checkpoint, differences, checkpoint);
  }
}

std::string run_identity(const config::ConfigSet& config, const std::string& data_hash) {
  std::string text = data_hash;
  for (const std::string& key : config.keys()) {
    if (!may_differ(key) && value_of_older_versions(key) != config.value(key))
      text += formatted("\n{}={}", key, config.value(key));
  }
  return xxh3_128_hex(text);
}

}  // namespace trireme::train
