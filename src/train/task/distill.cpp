#include "train/task/distill.hpp"

#include "objective/distillation.hpp"

namespace trireme {
namespace {

constexpr double kDistillLr = 5e-6;  // MiniMind V3's trainer/train_distillation.py

struct DistillConfig {
  std::string teacher;
  DistillationConfig loss;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("teacher", self.teacher,
          "a checkpoint, or a run's folder: any shape, the student's tokenizer");
    DistillationConfig::fields(self.loss, visit);
  }
};

class FrozenTeacher final : public Teacher {
 public:
  FrozenTeacher(FrozenModel& model, ops::Path path) : model_(model), path_(path) {}

  [[nodiscard]] TeacherStates states(const Microbatch& batch) override {
    const at::Tensor hidden = model_.hidden(batch);
    return {hidden, model_.head(path_)};
  }

 private:
  FrozenModel& model_;
  ops::Path path_;
};

class Distill final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override {
    return {"pretrain", "sft"};
  }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("distill", config_); }

  void make_paths_absolute() override { config_.teacher = absolute_place(config_.teacher); }

  void check(Problems& problems) const override { trireme::check(config_.loss, problems); }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kDistillLr; }

  [[nodiscard]] std::optional<FrozenNeed> frozen(const RunConfig& /*config*/) const override {
    return FrozenNeed{"teacher", "distill.teacher", config_.teacher, /*or_start=*/false,
                      /*same_vocabulary=*/true};
  }

  [[nodiscard]] std::unique_ptr<Objective> make_objective(
      const TaskContext& context) const override {
    return std::make_unique<DistillationObjective>(
        context.model.registry(),
        DistillationObjective::Setup{context.model.head_weight(), context.model.tensor(),
                                     config_.loss},
        std::make_unique<FrozenTeacher>(*context.frozen,
                                        ops::path_of(context.config.train.fused_ops)),
        context.measures);
  }

 private:
  DistillConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_distill() {
  return std::make_unique<Distill>();
}

}  // namespace trireme
