#include "train/task/sft.hpp"

#include "train/task/pretrain.hpp"

namespace trireme {
namespace {

constexpr double kLr = 1e-5;  // MiniMind V3's trainer/train_full_sft.py

class Sft final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"sft"}; }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kLr; }

  [[nodiscard]] std::unique_ptr<Objective> make_objective(
      const TaskContext& context) const override {
    return make_cross_entropy(context);
  }
};

}  // namespace

std::unique_ptr<Task> make_sft() {
  return std::make_unique<Sft>();
}

}  // namespace trireme
