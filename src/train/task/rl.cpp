#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "objective/policy.hpp"
#include "train/rl/agent.hpp"
#include "train/rl/answer_tokens.hpp"
#include "train/rl/rl_config.hpp"
#include "train/task/rl_source.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

constexpr double kRlLr = 3e-7;  // MiniMind V3's trainer/train_grpo.py

class Rl final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"rl"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("rl", config_); }

  void make_paths_absolute() override {
    config_.replay = absolute_path_or_empty(config_.replay);
    config_.reward_model = absolute_path_or_empty(config_.reward_model);
    config_.tools = absolute_path_or_empty(config_.tools);
  }

  void check(Problems& problems) const override { train::check(config_, problems); }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::int64_t rows_per_sample() const override { return config_.group; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kRlLr; }

  /// With adapters, the reference is the model without them.
  [[nodiscard]] std::optional<FrozenModelSpec> frozen(const RunConfig& config) const override {
    if (!config_.has_reference() || config.lora.on()) return std::nullopt;
    return FrozenModelSpec{"base", "rl.kl", "", /*use_start_if_empty=*/true};
  }

  [[nodiscard]] bool compares_with_start(const RunConfig& /*config*/) const override {
    return config_.has_reference();
  }

  void check_files(const RunConfig& config,
                   std::span<const data::SampleSet* const> sets) const override {
    const auto require = [](const char* key, std::int64_t value, std::int64_t most) {
      if (value <= most) return;
      fail(ErrorKind::usage,
           "{} is {}. It must be at most {} for trireme rl, because each rank generates answers "
           "with the whole model.",
           key, value, most);
    };
    require("parallel.tp", config.parallel.tp, 1);
    require("parallel.cp", config.parallel.cp, 1);
    require("parallel.pp", config.parallel.pp, 1);
    require("parallel.ep", config.parallel.ep, 1);
    require("parallel.local_steps", config.parallel.local_steps, 1);
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
    if (config.train.eval_every > 0) {
      fail(ErrorKind::usage,
           "train.eval_every is {}. It must be 0 for trireme rl, which has no validation.",
           config.train.eval_every);
    }
  }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    return std::make_unique<objective::PolicyObjective>(
        context.model.registry(),
        objective::PolicyObjective::Setup{
            context.model.head_weight(), ops::path_of(context.config.train.fused_ops),
            answer_tokens(context.sets.front()->set(), context.model.config().vocab_size).size,
            config_.loss, config_.has_reference()},
        context.measures);
  }

  [[nodiscard]] std::unique_ptr<SampleSource> make_source(
      const SourceContext& context) const override {
    return make_rollout_source(config_, context);
  }

 private:
  RlConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_rl() {
  return std::make_unique<Rl>();
}

}  // namespace trireme::train
