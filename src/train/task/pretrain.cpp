#include "objective/cross_entropy.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

class Pretrain final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"pretrain"}; }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    return make_cross_entropy(context);
  }
};

}  // namespace

std::unique_ptr<objective::Objective> make_cross_entropy(const TaskContext& context) {
  return std::make_unique<objective::CrossEntropy>(
      context.model.registry(), context.model.head_weight(),
      ops::path_of(context.config.train.fused_ops), context.model.tensor());
}

std::unique_ptr<Task> make_pretrain() {
  return std::make_unique<Pretrain>();
}

}  // namespace trireme::train
