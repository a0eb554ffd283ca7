#include <algorithm>
#include <filesystem>
#include <limits>
#include <string_view>

#include "core/error.hpp"
#include "objective/policy.hpp"
#include "parallel/param_spec.hpp"
#include "train/rl/agent.hpp"
#include "train/rl/answer_tokens.hpp"
#include "train/rl/prompts.hpp"
#include "train/rl/rl_config.hpp"
#include "train/rl/rollout_progress.hpp"
#include "train/task/rl_source.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

constexpr double kRlLr = 3e-7;  // MiniMind V3's trainer/train_grpo.py

class Rl final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"rl"}; }

  [[nodiscard]] std::vector<Field> section() override {
    std::vector<Field> fields = fields_of("rl", config_);
    for (Field& field : fields_of("ppo", config_.ppo)) fields.push_back(std::move(field));
    return fields;
  }

  void make_paths_absolute() override {
    config_.replay = absolute_path_or_empty(config_.replay);
    config_.reward_model = absolute_path_or_empty(config_.reward_model);
    config_.ppo.critic_init = absolute_path_or_empty(config_.ppo.critic_init);
    config_.tools = absolute_path_or_empty(config_.tools);
  }

  void check(Problems& problems) const override { train::check(config_, problems); }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::int64_t steps_per_batch(const RunConfig& config) const override {
    const std::int64_t prompts = config.train.global_batch;
    return config_.updates * (prompts / config_.prompts_of_step(prompts));
  }

  [[nodiscard]] std::int64_t steps_in_batch(const RunConfig& config,
                                            const RunValues& values) const override {
    const std::int64_t step = values.step.value_or(0);
    RolloutProgress progress;
    progress.restore(step, values.samples);
    const bool is_within = progress.unfinished(step, steps_per_batch(config)) > 0;
    return is_within ? progress.part(step + 1) : 0;
  }

  void choose_defaults(config::ConfigSet& keys) override {
    warn_about_ppo_keys(keys);
    if (!config_.reward_model.empty()) return;
    RlConfig own;
    own.rewards = kRewardsWithoutModel;
    std::vector<Field> fields = fields_of("rl", own);
    std::erase_if(fields, [](const Field& field) { return field.key != "rl.rewards"; });
    keys.apply_preset(fields, "default without rl.reward_model");
  }

  [[nodiscard]] std::int64_t rows_per_sample() const override { return config_.group; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kRlLr; }

  /// With adapters, the reference is the model without them.
  [[nodiscard]] std::optional<FrozenModelSpec> frozen(const RunConfig& config) const override {
    if (!config_.has_reference() || config.lora.on()) return std::nullopt;
    return FrozenModelSpec{"base", "rl.kl", "", /*use_start_if_empty=*/true};
  }

  [[nodiscard]] std::optional<CriticSpec> critic() const override {
    if (!config_.has_critic()) return std::nullopt;
    return CriticSpec{config_.ppo.critic_init,
                      config_.ppo.critic_lr,
                      {config_.ppo.value_clip, config_.ppo.value_weight}};
  }

  [[nodiscard]] bool compares_with_start(const RunConfig& /*config*/) const override {
    return config_.has_reference();
  }

  [[nodiscard]] bool copies_whole_model(const RunConfig& config) const override {
    return config_.replay.empty() && parallel::divides_model(config.parallel);
  }

  void check_files(const RunConfig& config,
                   std::span<const data::SampleSet* const> sets) const override {
    if (config.parallel.local_steps > 1) {
      fail(ErrorKind::usage,
           "parallel.local_steps is {}. It must be 1 for trireme rl, because all ranks generate "
           "answers with the same weights.",
           config.parallel.local_steps);
    }
    check_vocabulary(config, sets);
    if (config_.has_critic() && config.train.precision == "fp16") {
      fail(
          ErrorKind::usage,
          "train.precision is fp16. It must be bf16, fp32 or fp64 with rl.objective = ppo, because "
          "the critic has no loss scale.");
    }
    if (config.train.eval_every > 0 && !config_.replay.empty()) {
      fail(ErrorKind::usage,
           "train.eval_every is {}. It must be 0 with rl.replay, because a replay computes no "
           "rewards.",
           config.train.eval_every);
    }
    check_replay();
    if (config_.replay.empty())
      for (const data::SampleSet* samples : sets)
        check_prompt_lengths(config_, config.train.seq_len, *samples);
    if (config_.uses_tools()) {  // throws if rl.tools or the chat format is unfit
      const AnswerTokens tokens =
          answer_tokens(sets.front()->set(), std::numeric_limits<std::int64_t>::max());
      static_cast<void>(Agent(config_, tokens));
    }
    const std::int64_t prompts = config_.prompts_of_step(config.train.global_batch);
    if (config.train.global_batch % prompts != 0) {
      fail(ErrorKind::usage, "rl.mini_batch is {}. It must divide train.global_batch = {}.",
           prompts, config.train.global_batch);
    }
    if (!config.data.batch_phases.empty()) {
      fail(ErrorKind::usage,
           "data.batch_phases is {}. It must be empty for trireme rl, which has one batch size.",
           config.data.batch_phases);
    }
  }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    const std::int64_t num_ids = num_ids_of(context.sets, context.config);
    return std::make_unique<objective::PolicyObjective>(
        context.model.registry(),
        objective::PolicyObjective::Setup{
            context.model.head_weight(), ops::path_of(context.config.train.fused_ops), num_ids,
            config_.loss, config_.has_reference(), context.model.tensor()},
        context.measures);
  }

  [[nodiscard]] std::unique_ptr<SampleSource> make_source(
      const SourceContext& context) const override {
    return make_rollout_source(config_, context);
  }

 private:
  /// Warns about keys of PPO on the command line of a run with another objective. A file may have
  /// them, because the resolved configuration of a run contains all keys.
  void warn_about_ppo_keys(config::ConfigSet& keys) const {
    if (config_.has_critic()) return;
    for (const std::string& name : keys.names("ppo")) {
      const std::string key = cat("ppo.", name);
      if (!keys.origin(key).starts_with("--")) continue;
      keys.warn(
          formatted("{} = {} has no effect: only rl.objective = ppo uses it, and this run has {}",
                    key, keys.value(key), config_.loss.objective));
    }
  }

  /// Returns the number of ids of the tokenizer. Later rows of the embedding are padding.
  static std::int64_t num_ids_of(std::span<const data::SampleSet* const> sets,
                                 const RunConfig& config) {
    return answer_tokens(sets.front()->set(), config.model.vocab_size).size;
  }

  void check_replay() const {
    if (config_.replay.empty() || std::filesystem::exists(config_.replay)) return;
    fail(ErrorKind::data,
         "rl.replay is {}, which does not exist. Give a file or a directory with answers.",
         config_.replay);
  }

  /// Throws Error(usage) if a rank of tp has only rows that pad the embedding.
  static void check_vocabulary(const RunConfig& config,
                               std::span<const data::SampleSet* const> sets) {
    const auto tp = static_cast<int>(config.parallel.tp);
    if (tp == 1) return;
    const std::int64_t ids = num_ids_of(sets, config);
    if (parallel::split_range(config.model.vocab_size, {}, tp, tp - 1).begin < ids) return;
    fail(ErrorKind::usage,
         "parallel.tp is {}. It must be smaller: the last rank would have only rows of the "
         "embedding (model.vocab_size = {}) that are no ids of the tokenizer, which has {}.",
         tp, config.model.vocab_size, ids);
  }

  RlConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_rl() {
  return std::make_unique<Rl>();
}

}  // namespace trireme::train
