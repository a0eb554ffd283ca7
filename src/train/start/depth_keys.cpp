#include "train/start/depth_keys.hpp"

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

/// Sets one key to a number or a text, unless the command sets it.
class RuleKeys {
 public:
  explicit RuleKeys(config::ConfigSet& keys) : keys_(keys) {
    const auto add = [&](std::vector<Field> more) {
      fields_.insert(fields_.end(), more.begin(), more.end());
    };
    add(fields_of("model", values_.model));
    add(fields_of("train", values_.train));
    add(fields_of("optim", values_.optim));
  }

  template <class Value>
  void set(std::string_view key, const Value& value, const std::string& rule) {
    for (Field& field : fields_) {
      if (field.key != key) continue;
      std::visit(
          [&](auto* to) {
            using To = std::remove_pointer_t<decltype(to)>;
            if constexpr (std::is_assignable_v<To&, Value> &&
                          std::is_arithmetic_v<To> == std::is_arithmetic_v<Value>)
              *to = static_cast<To>(value);
          },
          field.value);
      keys_.apply_preset({field}, rule);
    }
  }

 private:
  config::ConfigSet& keys_;
  RunConfig values_;
  std::vector<Field> fields_;
};

bool sets_any_length(const config::ConfigSet& keys) {
  for (const char* key :
       {"train.steps", "train.epochs", "train.num_samples", "train.tokens_per_param"})
    if (keys.is_set(key)) return true;
  return false;
}

void set_optimizer(const DepthRule& rule, const RunConfig& config, RuleKeys& keys) {
  const std::string preset = "preset nanochat";
  const std::string batch = "x sqrt(batch tokens / 2^19)";
  const std::string width = "x (hidden_size / 768)^-0.5 " + batch;
  const auto rate = [&](const char* key, double base, const std::string& text, double factor) {
    keys.set(key, base * factor, formatted("{} {}", number_text(base), text));
  };
  const double both = rule.rate_factor * rule.width_factor;
  keys.set("optim.name", std::string("normuon"), preset);
  keys.set("optim.clip_norm", 0.0, preset);
  keys.set("optim.beta1", 0.8, preset);
  keys.set("optim.beta2", 0.96, preset);
  keys.set("optim.eps", 1e-10, preset);
  keys.set("optim.momentum_warmup", std::int64_t{400}, preset);
  keys.set("optim.momentum_end", 0.97, preset);
  rate("optim.lr", 0.02, batch, rule.rate_factor);
  rate("optim.matrix_lr", 0.02, batch, rule.rate_factor);
  rate("optim.head_lr", 0.008, width, both);
  rate("optim.embed_lr", 0.3, width, both);
  rate("optim.value_lr", 0.15, width, both);
  rate("optim.scalar_lr", 0.005, batch, rule.rate_factor);
  keys.set("optim.weight_decay", rule.weight_decay,
           "0.28 x sqrt(batch tokens / 2^19) x parameters of depth 12 / parameters");
  keys.set("optim.schedule", std::string("wsd"), preset);
  keys.set("optim.warmup_steps", std::int64_t{40}, preset);
  keys.set("optim.min_lr", 0.05 * config.optim.lr, "0.05 x optim.lr");
  if (config.train.steps > 0)
    keys.set("optim.decay_steps",
             static_cast<std::int64_t>(0.65 * static_cast<double>(config.train.steps)),
             "0.65 x train.steps");
}

}  // namespace

void apply_depth(const RunConfig& config, config::ConfigSet& keys, bool begins_anew) {
  if (config.model.depth <= 0) return;
  RuleKeys rules(keys);
  const std::int64_t depth = config.model.depth;
  rules.set("model.num_layers", depth, "model.depth");
  rules.set("model.hidden_size", DepthRule::hidden_size(depth),
            "64 x model.depth, rounded up to 128");
  rules.set("model.num_heads", config.model.hidden_size / DepthRule::kHeadDim,
            "model.hidden_size / 128");
  rules.set("model.num_kv_heads", config.model.num_heads, "model.num_heads");
  if (!begins_anew || !keys.problems().empty()) return;
  rules.set("train.seq_len", DepthRule::kSequence, "preset nanochat");
  model::ModelConfig shape = config.model;
  Problems problems;
  model::check(shape, problems);
  if (!problems.empty() || config.train.seq_len <= 0) return;  // check() reports them
  model::resolve(shape, shape.vocab_size);
  const bool has_batch = config.train.global_batch > 0;
  const DepthRule rule =
      model::depth_rule(shape, has_batch ? config.train.global_batch * config.train.seq_len : 0);
  if (config.train.accumulation == 0)
    rules.set("train.global_batch", rule.batch_tokens / config.train.seq_len,
              "2^19 tokens x (parameters / those of depth 12)^0.383, rounded to a power of 2");
  if (!sets_any_length(keys))
    rules.set("train.steps", rule.steps, "12 x parameters / (train.global_batch x train.seq_len)");
  set_optimizer(rule, config, rules);
}

}  // namespace trireme::train
