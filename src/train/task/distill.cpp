#include <map>
#include <optional>
#include <vector>

#include "objective/distillation.hpp"
#include "train/task/task.hpp"

namespace trireme::train {
namespace {

constexpr double kDistillLr = 5e-6;  // MiniMind V3's trainer/train_distillation.py

struct DistillConfig {
  std::string teacher;
  objective::DistillationConfig loss;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(
        "teacher", self.teacher,
        "teacher model (checkpoint, run or Hugging Face directory, also LoRA); any shape, with the student's tokenizer");
    objective::DistillationConfig::fields(self.loss, visit);
  }
};

/// A frozen teacher. It computes the hidden states of a micro-batch when they are requested. If
/// its stages lie on several ranks, it computes those of all micro-batches before the update's
/// passes; the last stage's rank then holds them until the next update.
class FrozenTeacher final : public objective::Teacher {
 public:
  FrozenTeacher(FrozenModel& model, ops::Path path, const parallel::Mesh& mesh)
      : model_(model), path_(path) {
    if (mesh.size(parallel::Axis::pp) > 1) stages_.emplace(model.transformer(), mesh);
  }

  void prepare(std::span<const parallel::Microbatch> micro_batches) override {
    prepared_.clear();
    std::vector<parallel::Microbatch> read_only(micro_batches.begin(), micro_batches.end());
    for (parallel::Microbatch& batch : read_only) batch.training = false;
    stages_->forward(read_only, [&](std::size_t i, const at::Tensor& hidden) {
      prepared_[micro_batches[i].tokens.const_data_ptr()] = hidden;
    });
  }

  [[nodiscard]] objective::TeacherStates states(const parallel::Microbatch& batch) override {
    const at::Tensor hidden =
        stages_ ? prepared_.at(batch.tokens.const_data_ptr()) : model_.hidden(batch);
    return {hidden, model_.head(path_)};
  }

 private:
  FrozenModel& model_;
  ops::Path path_;
  std::optional<FrozenStages> stages_;
  std::map<const void*, at::Tensor> prepared_;  // by the data pointer of the tokens
};

class Distill final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override {
    return {"pretrain", "sft"};
  }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("distill", config_); }

  void make_paths_absolute() override { config_.teacher = absolute_path_or_empty(config_.teacher); }

  void check(Problems& problems) const override { objective::check(config_.loss, problems); }

  [[nodiscard]] bool needs_start() const override { return true; }

  [[nodiscard]] std::optional<double> default_lr() const override { return kDistillLr; }

  [[nodiscard]] std::optional<FrozenModelSpec> frozen(const RunConfig& /*config*/) const override {
    return FrozenModelSpec{"teacher", "distill.teacher", config_.teacher,
                           /*use_start_if_empty=*/false,
                           /*same_vocabulary=*/true};
  }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const TaskContext& context) const override {
    return std::make_unique<objective::DistillationObjective>(
        context.model.registry(),
        objective::DistillationObjective::Setup{context.model.head_weight(), context.model.tensor(),
                                                config_.loss},
        std::make_unique<FrozenTeacher>(*context.frozen,
                                        ops::path_of(context.config.train.fused_ops), context.mesh),
        context.measures);
  }

 private:
  DistillConfig config_;
};

}  // namespace

std::unique_ptr<Task> make_distill() {
  return std::make_unique<Distill>();
}

}  // namespace trireme::train
