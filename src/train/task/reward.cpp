#include "objective/bradley_terry.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

constexpr double kRewardLr = 1e-5;  // 9e-6 in Ouyang et al., 2022 (InstructGPT), appendix C.2

/// Trains a reward model: a scalar head, and the whole model below it.
class Reward final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"dpo"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("reward", config_); }

  void check(Problems& problems) const override { objective::check(config_, problems); }

  [[nodiscard]] bool needs_start() const override { return true; }

  /// Adapters would be saved without the head's base model.
  [[nodiscard]] bool trains_adapters() const override { return false; }

  [[nodiscard]] bool trains_reward_head() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kRewardLr; }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    return std::make_unique<objective::BradleyTerry>(
        context.model.registry(),
        objective::BradleyTerry::Setup{context.model.has_head(), context.model.head_weight(),
                                       context.model.config().hidden_size, context.model.tensor(),
                                       parallel::context_group(context.mesh), config_},
        context.measures);
  }

 private:
  objective::RewardConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_reward() {
  return std::make_unique<Reward>();
}

}  // namespace trireme::train
