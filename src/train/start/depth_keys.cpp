#include "train/start/depth_keys.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/fields.hpp"
#include "core/number.hpp"
#include "model/depth_rule.hpp"
#include "optim/config.hpp"

namespace trireme::train {
namespace {

using model::DepthRule;

constexpr const char* kPreset = "preset nanochat";
constexpr const char* kDecayRule = "0.65 x train.steps";

/// Sets one key to a number or a text, unless the command sets it.
class RuleKeys {
 public:
  explicit RuleKeys(config::ConfigSet& keys, bool replaces_earlier = false)
      : keys_(keys), replaces_earlier_(replaces_earlier) {
    const auto add = [&](const std::vector<Field>& more) {
      fields_.insert(fields_.end(), more.begin(), more.end());
    };
    add(fields_of("model", values_.model));
    add(fields_of("train", values_.train));
    add(fields_of("optim", values_.optim));
  }

  template <class Value>
  void set(std::string_view key, const Value& value, const std::string& rule = kPreset) {
    const auto field = std::find_if(fields_.begin(), fields_.end(),
                                    [&](const Field& one) { return one.key == key; });
    TRIREME_ASSERT(field != fields_.end() && std::holds_alternative<Value*>(field->value));
    *std::get<Value*>(field->value) = value;
    keys_.apply_preset({*field}, rule, replaces_earlier_);
  }

 private:
  config::ConfigSet& keys_;
  bool replaces_earlier_;
  RunConfig values_;
  std::vector<Field> fields_;
};

bool has_depth(const RunConfig& config) {
  return config.model.depth >= 1 && config.model.depth <= DepthRule::kMaxDepth;
}

/// Returns false and adds a problem if the batch of the run does not follow from
/// train.global_batch, on which the steps and the rates depend.
bool check_batch_keys(const RunConfig& config, config::ConfigSet& keys) {
  constexpr const char* kInstead =
      "cannot be combined with model.depth, which gives train.global_batch: set "
      "train.global_batch instead";
  if (config.train.accumulation > 0)
    keys.problems().add("train.accumulation", config.train.accumulation, kInstead);
  if (!config.data.batch_phases.empty())
    keys.problems().add("data.batch_phases", config.data.batch_phases, kInstead);
  return keys.problems().empty();
}

bool sets_any_length(const config::ConfigSet& keys) {
  const auto names = {"train.steps", "train.epochs", "train.num_samples", "train.tokens_per_param"};
  return std::any_of(names.begin(), names.end(), [&](const char* key) { return keys.is_set(key); });
}

/// Returns the values of nanochat for single groups. `factor` multiplies the rates, except those
/// of smear and backout.
std::string group_values(double factor) {
  return formatted(
      "embed.beta2=0.995,embed.weight_decay=0.001,head.weight_decay=0.01,value.beta2=0.995,"
      "value.weight_decay=0.01,residual_scalar.beta2=0.95,residual_scalar.weight_decay=0.05,"
      "embedding_scalar.lr={},embedding_scalar.beta1=0.96,embedding_scalar.beta2=0.95,"
      "smear.lr=0.2,smear.beta2=0.95,backout.lr=0.2,backout.beta2=0.95",
      number_text(0.5 * factor));
}

void set_optimizer(const DepthRule& rule, const RunConfig& config, RuleKeys& keys) {
  const std::string batch = "x sqrt(batch tokens / 2^19)";
  const std::string width = "x (model.hidden_size / 768)^-0.5 " + batch;
  const auto rate = [&](const char* key, double base, const std::string& text, double factor) {
    keys.set(key, base * factor, formatted("{} {}", number_text(base), text));
  };
  const double both = rule.rate_factor * rule.width_factor;
  rate("optim.lr", 0.02, batch, rule.rate_factor);
  rate("optim.matrix_lr", 0.02, batch, rule.rate_factor);
  rate("optim.head_lr", 0.008, width, both);
  rate("optim.embed_lr", 0.3, width, both);
  rate("optim.value_lr", 0.15, width, both);
  rate("optim.scalar_lr", 0.005, batch, rule.rate_factor);
  keys.set("optim.weight_decay", rule.weight_decay,
           "0.28 x sqrt(batch tokens / 2^19) x parameters of depth 12 / parameters");
  keys.set("optim.groups", group_values(rule.rate_factor),
           formatted("{}; embedding_scalar.lr = 0.5 {}", kPreset, batch));
  keys.set("optim.decay_schedule", std::string("cosine"));
  keys.set("optim.row_equalize", true);
  keys.set("optim.renormalize", true);
  keys.set("optim.beta1", 0.8);
  keys.set("optim.beta2", 0.96);
  keys.set("optim.eps", 1e-10);
  keys.set("optim.momentum_warmup", std::int64_t{400});
  keys.set("optim.momentum_end", 0.97);
  keys.set("optim.clip_norm", 0.0);
  keys.set("optim.schedule", std::string(optim::kWsdSchedule));
  if (config.optim.schedule != optim::kWsdSchedule) return;
  keys.set("optim.warmup_steps", std::int64_t{40});
  keys.set("optim.min_lr", 0.05 * config.optim.lr, "0.05 x optim.lr");
  keys.set("optim.momentum_final", 0.9);
  if (config.train.steps > 0)
    keys.set("optim.decay_steps", decay_steps_of_depth(config.train.steps), kDecayRule);
}

}  // namespace

std::int64_t decay_steps_of_depth(std::int64_t steps) {
  return std::llrint(0.65 * static_cast<double>(steps));
}

bool decay_follows_depth(const RunConfig& config, const config::ConfigSet& keys) {
  return has_depth(config) && config.optim.schedule == optim::kWsdSchedule &&
         config.optim.decay_steps == optim::kTenthOfSteps && !keys.is_set("optim.decay_steps") &&
         keys.origin("optim.schedule") == kPreset;
}

void apply_depth(const RunConfig& config, config::ConfigSet& keys, bool has_shape,
                 bool replaces_earlier) {
  if (keys.is_set("model.depth") && config.model.depth != 0 && config.model.preset != "nanochat")
    keys.problems().add("model.depth", config.model.depth, "needs model.preset = nanochat");
  if (!has_depth(config)) return;
  RuleKeys rules(keys, replaces_earlier);
  rules.set("model.num_layers", config.model.depth, "model.depth");
  rules.set("model.hidden_size", DepthRule::hidden_size(config.model.depth),
            "64 x model.depth, rounded up to a multiple of 128");
  rules.set("model.num_heads", DepthRule::num_heads(config.model.hidden_size),
            "model.hidden_size / 128");
  rules.set("model.num_kv_heads", config.model.num_heads, "model.num_heads");
  if (!has_shape) rules.set("optim.name", std::string("normuon"));
}

void apply_depth_training(const RunConfig& config, config::ConfigSet& keys) {
  if (!has_depth(config) || !keys.problems().empty()) return;
  RuleKeys rules(keys);
  rules.set("train.seq_len", config.model.max_seq_len, "model.max_seq_len");
  model::ModelConfig shape = config.model;
  if (shape.vocab_size == 0)
    keys.problems().add("model.vocab_size", shape.vocab_size,
                        "must be more than 0 with model.depth: the batch, the steps and the rates "
                        "depend on the number of parameters");
  Problems problems;
  model::check(shape, problems);
  if (!problems.empty() || shape.vocab_size < 1 || config.train.seq_len < 1 ||
      config.train.global_batch < 0)
    return;
  if (!check_batch_keys(config, keys)) return;
  model::resolve(shape, shape.vocab_size);
  const DepthRule rule = model::depth_rule(shape, config.train.global_batch * config.train.seq_len);
  rules.set("train.global_batch",
            std::max<std::int64_t>(rule.batch_tokens / config.train.seq_len, 1),
            "2^19 x (parameters / parameters of depth 12)^0.383 tokens, rounded to a power of 2, / "
            "train.seq_len");
  if (!sets_any_length(keys))
    rules.set("train.steps", rule.steps, "12 x parameters / (train.global_batch x train.seq_len)");
  if (config.optim.name == "muon" || config.optim.name == "normuon")
    set_optimizer(rule, config, rules);
}

}  // namespace trireme::train
