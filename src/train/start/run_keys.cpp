#include "train/start/run_keys.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format/model_head.hpp"
#include "checkpoint/maintenance/model_path.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "optim/muon.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"
#include "train/report/sinks.hpp"
#include "train/start/depth_keys.hpp"

namespace trireme::train {
namespace {

constexpr std::optional<double> kLoraLr = 1e-4;  // MiniMind V3's trainer/train_lora.py

/// Returns the names of the tasks that train adapters: "sft, dpo and distill".
std::string adapter_tasks() {
  std::vector<std::string_view> names;
  for (const TaskRow& row : task_rows())
    if (row.make()->trains_adapters()) names.push_back(row.name);
  const std::string_view last = names.back();
  names.pop_back();
  return cat(joined(names, ", "), " and ", last);
}

void remove_lora_keys(std::string_view task, config::ConfigSet& keys) {
  for (const std::string& name : keys.names("lora")) {
    const std::string key = cat("lora.", name);
    if (keys.is_set(key)) {
      keys.problems().add(
          key, keys.value(key),
          formatted("is not a key of {}: {} train adapters", task, adapter_tasks()));
    }
    keys.leave_out(key);
  }
}

/// If both keys are set, train.steps overrides train.tokens_per_param. Exception: the command line
/// sets train.tokens_per_param, and train.steps comes from a file or from the environment.
void choose_token_key(const TrainConfig& train, config::ConfigSet& keys) {
  const auto is_typed = [&](const char* key) { return keys.origin(key).starts_with("--"); };
  if (train.tokens_per_param == 0) return;
  if (is_typed("train.epochs")) {
    if (!is_typed("train.tokens_per_param"))
      return keys.set("train.tokens_per_param", "0", "--train.epochs");
    keys.problems().add("train.tokens_per_param", train.tokens_per_param,
                        "cannot be combined with train.epochs");
  }
  if (train.steps > 0 && is_typed("train.tokens_per_param") && !is_typed("train.steps"))
    keys.set("train.steps", "0", "--train.tokens_per_param");
}

/// If both keys are set, train.steps overrides train.epochs. Exception: the command line sets
/// train.epochs, and train.steps comes from a file or from the environment.
void choose_length_key(const TrainConfig& train, config::ConfigSet& keys) {
  if (train.steps <= 0 || !keys.is_set("train.steps") || !keys.is_set("train.epochs")) return;
  const auto is_typed = [&](const char* key) { return keys.origin(key).starts_with("--"); };
  if (is_typed("train.epochs") && !is_typed("train.steps"))
    return keys.set("train.steps", "0", "--train.epochs");
  // A file with a resolved configuration contains both keys, and train.epochs has its default.
  if (!is_typed("train.epochs") && train.epochs == TrainConfig{}.epochs) return;
  keys.warn(formatted(
      "train.steps = {} ({}) is the length of the run. train.epochs = {} ({}) would count if "
      "train.steps were 0",
      train.steps, keys.origin("train.steps"), number_text(train.epochs),
      keys.origin("train.epochs")));
}

constexpr const char* kOptimSection = "optim";

/// With optim.schedule = piecewise, optim.lr is the largest rate of optim.points.
void choose_peak_rate(const optim::OptimConfig& optim, config::ConfigSet& keys) {
  const double most = optim.schedule == optim::kPiecewiseSchedule ? optim::largest_point(optim) : 0;
  if (most <= 0) return;
  optim::OptimConfig peak;
  peak.lr = most;
  std::vector<Field> fields = fields_of(kOptimSection, peak);
  std::erase_if(fields, [](const Field& field) { return field.key != "optim.lr"; });
  keys.apply_preset(fields, "largest rate of optim.points", keys.is_set("optim.points"));
}

bool has_key(const std::vector<optim::OptimizerKey>& keys, const std::string& name) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const optim::OptimizerKey& key) { return key.name == name; });
}

/// Returns the keys in `config` that its optimizer has. They point to members of `config`.
std::vector<Field> own_fields(optim::OptimConfig& config) {
  const std::vector<optim::OptimizerKey> own = optim::keys_of_optimizer(config.name);
  std::vector<Field> fields = fields_of(kOptimSection, config);
  std::erase_if(fields, [&](const Field& field) {
    return !has_key(own, std::string(config::name_of(field.key)));
  });
  return fields;
}

/// Applies the defaults of the chosen optimizer (`optim.name`) to keys that are not set, and
/// removes keys that it does not have. Adds a problem if the command sets one of the removed keys.
void resolve_optimizer_keys(const optim::OptimConfig& optim, config::ConfigSet& keys) {
  optim::OptimConfig chosen = optim::optimizer_defaults(optim.name);
  const std::vector<optim::OptimizerKey> own = optim::keys_of_optimizer(optim.name);
  if (own.empty()) return;  // unknown optimizer: check() reports it
  const std::string own_names =
      joined(own, ", ", [](const optim::OptimizerKey& key) { return key.name; });
  for (const optim::OptimizerKey& key : chosen.keys) {
    const std::string name = formatted("{}.{}", kOptimSection, key.name);
    const bool lacks = !has_key(own, key.name);
    keys.leave_out(name, lacks);
    if (lacks && keys.is_set(name)) {
      keys.problems().add(name, keys.value(name),
                          formatted("is not a key of {}, which has {}", optim.name, own_names));
    }
  }
  keys.apply_preset(own_fields(chosen), "default");
}

/// Makes the own learning rates of the optimizer (`matrix_lr`) follow optim.lr, for commands that
/// have a small rate of their own because they continue from a trained model.
void follow_run_rate(const std::string& optimizer, const std::string& origin,
                     config::ConfigSet& keys) {
  optim::OptimConfig config = optim::optimizer_defaults(optimizer);
  for (optim::OptimizerKey& key : config.keys)
    if (key.name.ends_with("_lr")) key.value = optim::kRateOfRun;
  std::vector<Field> rates = own_fields(config);
  std::erase_if(rates, [](const Field& field) { return !field.key.ends_with("_lr"); });
  keys.apply_preset(rates, origin);
}

}  // namespace

std::unique_ptr<config::ConfigSet> make_run_keys(RunConfig& config,
                                                 const std::vector<Field>& section) {
  std::vector<Field> fields;
  const auto add = [&](const std::vector<Field>& more) {
    fields.insert(fields.end(), more.begin(), more.end());
  };
  add(fields_of("model", config.model));
  add(fields_of("train", config.train));
  add(fields_of("optim", config.optim));
  add(fields_of("parallel", config.parallel));
  add(fields_of("checkpoint", config.checkpoint));
  add(fields_of("data", config.data));
  add(sink_fields(config.metrics));
  add(fields_of("lora", config.lora));
  add(section);
  return std::make_unique<config::ConfigSet>(std::move(fields));
}

AllTaskKeys::AllTaskKeys() {
  std::vector<Field> sections;
  for (const TaskRow& row : task_rows()) {
    tasks.push_back(row.make());
    for (const Field& field : tasks.back()->section()) sections.push_back(field);
  }
  keys = make_run_keys(config, sections);
}

void finish_run_keys(RunConfig& config, config::ConfigSet& keys, const RunStart& start) {
  const std::vector<std::string> known = model::model_preset_names();
  bool anew = false;  // another preset replaces the shape of the start
  if (std::find(known.begin(), known.end(), config.model.preset) != known.end()) {
    model::ModelConfig preset = model::model_preset(config.model.preset);
    anew = start.has_shape && keys.is_set("model.preset") && start.preset != config.model.preset;
    keys.apply_preset(fields_of("model", preset), "preset " + config.model.preset, anew);
  }
  apply_depth(config, keys, start.has_shape, anew);
  choose_token_key(config.train, keys);
  choose_length_key(config.train, keys);
  resolve_optimizer_keys(config.optim, keys);
  if (!start.has_shape) apply_depth_training(config, keys);
  choose_peak_rate(config.optim, keys);
  check_start_kind(config, start, keys);
  check(config, keys.problems());
  check_sinks(config.metrics, keys.problems());
  // Check the value only if the command sets it, because runs of older versions may have a larger
  // min_lr.
  if (keys.is_set("optim.min_lr") && config.optim.min_lr > config.optim.lr) {
    keys.problems().add("optim.min_lr", config.optim.min_lr,
                        formatted("must be at most optim.lr = {}", number_text(config.optim.lr)));
  }
}

void finish_task_keys(Task& task, std::string_view name, RunConfig& config, config::ConfigSet& keys,
                      const RunStart& start) {
  check_task(name, start);
  if (start.kind != RunStart::Kind::resume_run)
    checkpoint::check_head(start.values.model, start.checkpoint,
                           task.trains_reward_head() ? checkpoint::kRewardModelHead : "");
  task.make_paths_absolute();
  if (!task.trains_adapters()) remove_lora_keys(name, keys);
  const std::string origin = formatted("default of {}", name);
  const auto lr = config.lora.on() ? kLoraLr : task.default_lr();
  if (lr) {
    optim::OptimConfig own;
    own.lr = *lr;
    std::vector<Field> fields = fields_of("optim", own);
    std::erase_if(fields, [](const Field& field) { return field.key != "optim.lr"; });
    keys.apply_preset(fields, origin);
  }
  task.choose_defaults(keys);
  if (task.needs_start()) check_init(name, config, start, keys);
  const auto need = task.frozen(config);
  if (need && need->checkpoint.empty() && !need->use_start_if_empty) {
    keys.problems().add(need->key, "''",
                        formatted("{} needs a {}: give --{} with a {}", name, need->name, need->key,
                                  checkpoint::kModelPathHelp));
  }
  finish_run_keys(config, keys, start);
  if (lr) follow_run_rate(config.optim.name, origin, keys);
  task.check(keys.problems());
}

}  // namespace trireme::train
