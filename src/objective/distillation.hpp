#pragma once
#include <memory>
#include <span>

#include "core/measures.hpp"
#include "core/problems.hpp"
#include "objective/linear_distillation.hpp"
#include "objective/step_means.hpp"

namespace trireme {

/// Keys of section [distill] that say what the loss is.
struct DistillationConfig {
  double alpha = 0.5;
  double temperature = 1.5;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("alpha", self.alpha,
          "share of the cross entropy of the targets; the rest is the teacher's");
    visit("temperature", self.temperature, "divides the logits of both where they are compared");
  }
};

/// Adds what is wrong with it.
void check(const DistillationConfig& config, Problems& problems);

/// What a frozen teacher says of a batch: its states after the last norm [B, T, its width], and its
/// head, cut as the student's.
struct TeacherStates {
  at::Tensor hidden;
  Head head;
};

/// Where a student has its teacher's states from.
class Teacher {
 public:
  virtual ~Teacher() = default;

  /// As Objective::prepare.
  virtual void prepare(std::span<const Microbatch> /*micro_batches*/) {}

  /// Called once for each micro-batch, after the student's own forward pass.
  [[nodiscard]] virtual TeacherStates states(const Microbatch& batch) = 0;
};

/// alpha CE + (1 - alpha) T^2 KL(teacher || student) of every target, times its
/// batch.target_weights. Rows without a target have no logits. Measures, means over the targets of
/// a step: ce, and kl without its factors.
class DistillationObjective final : public Objective {
 public:
  struct Setup {
    ParamId head = 0;  // [V, D]
    TensorGroup tensor = {};
    DistillationConfig config = {};
  };

  /// `registry` and `measures` must outlive this.
  DistillationObjective(ParamRegistry& registry, const Setup& setup,
                        std::unique_ptr<Teacher> teacher, Measures& measures);

  void prepare(std::span<const Microbatch> micro_batches) override {
    teacher_->prepare(micro_batches);
  }

  at::Tensor forward(const Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveTape& tape) override;
  void backward(ObjectiveTape& tape) override;
  [[nodiscard]] at::Tensor evaluate(const Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  [[nodiscard]] DistillationOutput loss_of(const Microbatch& batch, const at::Tensor& hidden,
                                           const TargetRows& targets,
                                           DistillationSetup setup) const;

  ParamRegistry& registry_;
  Setup setup_;
  std::unique_ptr<Teacher> teacher_;
  StepMeans means_;
};

}  // namespace trireme
