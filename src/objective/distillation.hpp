#pragma once
#include <memory>
#include <span>

#include "core/measures.hpp"
#include "core/problems.hpp"
#include "objective/head.hpp"
#include "objective/step_means.hpp"

namespace trireme::objective {

/// Keys of section [distill] that define the loss.
struct DistillationConfig {
  double alpha = 0.5;
  double temperature = 1.5;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("alpha", self.alpha,
          "weight of the cross entropy in [0, 1]; the KL divergence from the teacher has the rest");
    visit("temperature", self.temperature,
          "temperature of student and teacher logits in the KL divergence");
  }
};

void check(const DistillationConfig& config, Problems& problems);

struct DistillationSetup {
  double alpha = 0.5;
  double temperature = 1.5;  // factor T of the logits in the divergence: logits / T
  double grad_scale = 1.0;   // factor on the gradients, not included in the sums
  std::int64_t chunk_rows = 256;
  bool want_grads = true;
  at::Tensor row_weights{};      // [N] fp32 or fp64: weight of each row's loss; undefined: 1
  bool targets_checked = false;  // true if the caller has called check_targets()
};

/// Sums of the weighted losses of all rows.
struct DistillationOutput {
  at::Tensor loss_sum;     // scalar fp64: alpha ce + (1 - alpha) T^2 kl
  at::Tensor ce_sum;       // scalar fp64: -log p[target]
  at::Tensor kl_sum;       // scalar fp64: KL(teacher || student), both at temperature T
  at::Tensor grad_x;       // [N, D], from the local classes, like LinearCrossEntropyOutput
  at::Tensor grad_weight;  // [V, D], local rows; undefined for a frozen head
};

/// Computes the output projections of a student x [N, D] and a teacher [N, teacher width], and the
/// distillation loss between them. It works in chunks of rows: the full logits never exist. All
/// `targets` [N] must be valid.
///
/// The two models may have different numbers of classes, because embeddings of one tokenizer are
/// padded to different sizes. The divergence covers the classes that both have, with each softmax
/// normalized over these classes. The cross entropy covers all classes of the student. With tensor
/// parallelism, ranks exchange 32 bytes per row in fp32. If the vocabularies are split differently,
/// they also exchange the rows of the teacher's head that another rank needs, once per call.
/// Collective over the head's ranks. Source: Hinton et al., "Distilling the knowledge in a neural
/// network", 2015, section 2.
DistillationOutput linear_distillation(const at::Tensor& x, const Head& head,
                                       const at::Tensor& teacher_x, const Head& teacher,
                                       const at::Tensor& targets, const DistillationSetup& setup);

/// The outputs of a frozen teacher for a batch: its hidden states after the final norm [B, T,
/// teacher width] and its head, split like the student's.
struct TeacherStates {
  at::Tensor hidden;
  Head head;
};

/// Provides a teacher's hidden states to a student's objective.
class Teacher {
 public:
  virtual ~Teacher() = default;

  /// Called like Objective::prepare.
  virtual void prepare(std::span<const parallel::Microbatch> /*micro_batches*/) {}

  /// Returns the teacher's states. Called once per micro-batch, after the student's forward pass.
  [[nodiscard]] virtual TeacherStates states(const parallel::Microbatch& batch) = 0;
};

/// The loss alpha CE + (1 - alpha) T^2 KL(teacher || student) of every target, weighted by
/// batch.target_weights. Rows without a target have no logits. Measures, as means over the targets
/// of a step: ce, and kl without its factors.
class DistillationObjective final : public Objective {
 public:
  struct Setup {
    parallel::ParamId head = 0;  // [V, D]
    parallel::TensorGroup tensor = {};
    DistillationConfig config = {};
  };

  /// `registry` and `measures` must outlive this.
  DistillationObjective(parallel::ParamRegistry& registry, const Setup& setup,
                        std::unique_ptr<Teacher> teacher, Measures& measures);

  void prepare(std::span<const parallel::Microbatch> micro_batches) override {
    teacher_->prepare(micro_batches);
  }

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveGrads& saved) override;
  void backward(ObjectiveGrads& saved) override;
  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override;

 private:
  [[nodiscard]] DistillationOutput loss_of(const parallel::Microbatch& batch,
                                           const at::Tensor& hidden, const TargetRows& targets,
                                           DistillationSetup setup) const;

  parallel::ParamRegistry& registry_;
  Setup setup_;
  std::unique_ptr<Teacher> teacher_;
  StepMeans means_;
};

}  // namespace trireme::objective
