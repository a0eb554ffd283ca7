#pragma once
#include <memory>
#include <span>

#include "core/measures.hpp"
#include "core/problems.hpp"
#include "objective/head.hpp"
#include "objective/step_means.hpp"

namespace trireme {

/// Keys of section [distill] that say what the loss is.
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

/// Adds what is wrong with it.
void check(const DistillationConfig& config, Problems& problems);

struct DistillationSetup {
  double alpha = 0.5;
  double temperature = 1.5;  // T
  double grad_scale = 1.0;   // factor of the gradients; the sums do not contain it
  std::int64_t chunk_rows = 256;
  bool want_grads = true;
  at::Tensor row_weights{};  // [N] fp32 (fp64 for fp64): of each row's loss; undefined: all 1
};

/// Sums over the rows, each times its weight.
struct DistillationOutput {
  at::Tensor loss_sum;     // scalar fp64: alpha ce + (1 - alpha) T^2 kl
  at::Tensor ce_sum;       // scalar fp64: -log p[target]
  at::Tensor kl_sum;       // scalar fp64: KL(teacher || student), both at temperature T
  at::Tensor grad_x;       // [N, D], of this rank's classes, as ops::LinearCrossEntropyOutput
  at::Tensor grad_weight;  // [V, D], of this rank's rows; undefined of a frozen head
};

/// Output projections of a student x [N, D] and of a teacher [N, its width], and the distillation
/// loss of both, chunked over rows: the logits of neither exist as a whole. `targets` [N], all of
/// them valid. The two may have different numbers of classes, because embeddings of one tokenizer are
/// padded to different sizes: the divergence is taken over the classes that both have, and each softmax
/// is normalized over these alone; the cross entropy is over all classes of the student. With tensor
/// parallelism ranks share 32 bytes a row in fp32, and once a call the rows of the teacher's head by
/// which the two cuts of the vocabulary lie apart. Source: Hinton et al., "Distilling the knowledge in a
/// neural network", 2015, section 2.
DistillationOutput linear_distillation(const at::Tensor& x, const Head& head,
                                       const at::Tensor& teacher_x, const Head& teacher,
                                       const at::Tensor& targets, const DistillationSetup& setup);

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
