#include "train/task/task.hpp"

namespace trireme::train {
namespace {

constexpr double kSftLr = 1e-5;  // MiniMind V3's trainer/train_full_sft.py

struct SftConfig {
  std::string token_weights;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(
        "token_weights", self.token_weights,
        "loss weights of single tokens, such as <think>=10,</think>=10; the mean is still over all targets");
  }
};

class Sft final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"sft"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("sft", config_); }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kSftLr; }

  void choose_data(data::StreamConfig& stream, const data::EncodeWord& encode) const override {
    stream.token_weights =
        data::parse_token_weights(config_.token_weights, "sft.token_weights", encode);
  }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    return make_cross_entropy(context);
  }

 private:
  SftConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_sft() {
  return std::make_unique<Sft>();
}

}  // namespace trireme::train
