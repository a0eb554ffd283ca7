#pragma once
#include "objective/head.hpp"

namespace trireme {

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

}  // namespace trireme
