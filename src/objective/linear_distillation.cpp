#include "objective/linear_distillation.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.hpp"
#include "ops/product.hpp"
#include "parallel/collectives.hpp"

namespace trireme {
namespace {

/// The teacher's rows of the student's classes on this rank.
at::Tensor teacher_rows(const Head& student, const Head& teacher) {
  const std::int64_t classes = student.weight.size(0);
  const bool cut_alike = teacher.first == student.first && teacher.weight.size(0) >= classes &&
                         (student.tensor.size() == 1 || teacher.classes == student.classes);
  if (!cut_alike) {
    fail(
        ErrorKind::usage,
        "the teacher has {} classes, {} of them on this rank from {} on, the student {}, {} from {} on: a teacher needs the student's vocabulary at least, and exactly that with parallel.tp above 1",
        teacher.classes, teacher.weight.size(0), teacher.first, student.classes, classes,
        student.first);
  }
  return teacher.weight.narrow(0, 0, classes);
}

/// Of rows [rows] of one chunk, of all classes; statistics [rows].
struct ChunkTerms {
  at::Tensor ce;
  at::Tensor kl;
  at::Tensor grad;  // [rows, this rank's classes]: d (alpha ce + (1 - alpha) T^2 kl) / d logits
};

/// Logits [rows, this rank's classes] of both, which are overwritten.
ChunkTerms chunk_terms(const at::Tensor& logits, const at::Tensor& teacher,
                       const at::Tensor& targets, const Head& head,
                       const DistillationSetup& setup) {
  const std::int64_t rows = logits.size(0);
  const bool alone = head.tensor.size() == 1;
  const at::Tensor largest = at::stack({logits.amax(1), teacher.amax(1)});
  if (!alone) all_reduce(head.tensor.group(), largest, ReduceOp::max, "loss maxima")->wait();
  logits.sub_(largest[0].unsqueeze(1));
  teacher.sub_(largest[1].unsqueeze(1)).div_(setup.temperature);

  const at::Tensor local = targets - head.first;
  const at::Tensor own = local.ge(0).logical_and_(local.lt(logits.size(1)));
  const at::Tensor picks = local.masked_fill(own.logical_not(), 0).unsqueeze(1);  // [rows, 1]
  const at::Tensor sums = at::empty({5, rows}, logits.options());
  sums[0].copy_(logits.gather(1, picks).squeeze(1).masked_fill_(own.logical_not(), 0));
  const at::Tensor warm = logits / setup.temperature;
  const at::Tensor teacher_exp = teacher.exp();
  sums[1].copy_(teacher_exp.sum(1));
  sums[2].copy_(teacher.sub_(warm).mul_(teacher_exp).sum(1));
  const at::Tensor warm_exp = warm.exp_();
  sums[3].copy_(warm_exp.sum(1));
  const at::Tensor exponentials = logits.exp_();
  sums[4].copy_(exponentials.sum(1));
  if (!alone) all_reduce(head.tensor.group(), sums, ReduceOp::sum, "loss sums")->wait();

  ChunkTerms terms;
  terms.ce = sums[4].log() - sums[0];
  terms.kl = sums[2] / sums[1] + sums[3].log() - sums[1].log();
  if (!setup.want_grads) return terms;
  const double of_kl =
      (1 - setup.alpha) * setup.temperature;  // T^2 of the loss, 1 / T of the logit
  terms.grad = exponentials.mul_((setup.alpha / sums[4]).unsqueeze(1));
  terms.grad.scatter_add_(1, picks, own.to(logits.scalar_type()).mul_(-setup.alpha).unsqueeze(1));
  terms.grad.addcmul_(warm_exp, (of_kl / sums[3]).unsqueeze(1));
  terms.grad.addcmul_(teacher_exp, (of_kl / sums[1]).unsqueeze(1), -1);
  return terms;
}

}  // namespace

DistillationOutput linear_distillation(const at::Tensor& x, const Head& head,
                                       const at::Tensor& teacher_x, const Head& teacher,
                                       const at::Tensor& targets, const DistillationSetup& setup) {
  const at::NoGradGuard no_grad;
  TRIREME_ASSERT(teacher_x.size(0) == x.size(0) && targets.size(0) == x.size(0));
  ops::check_targets(targets, head.classes);
  const at::Tensor teacher_weight = teacher_rows(head, teacher);
  const auto type = ops::accumulate_type(x);
  const at::Tensor sums = at::zeros({2}, x.options().dtype(at::kDouble));  // ce, kl
  DistillationOutput out;
  if (setup.want_grads) {
    out.grad_x = at::empty_like(x, at::MemoryFormat::Contiguous);
    if (head.trained) out.grad_weight = at::zeros(head.weight.sizes(), x.options().dtype(type));
  }
  for (std::int64_t first = 0; first < x.size(0); first += setup.chunk_rows) {
    const std::int64_t rows = std::min(setup.chunk_rows, x.size(0) - first);
    const at::Tensor inputs = x.narrow(0, first, rows);
    const ChunkTerms terms =
        chunk_terms(ops::product(inputs, head.weight.t()).to(type),
                    ops::product(teacher_x.narrow(0, first, rows), teacher_weight.t()).to(type),
                    targets.narrow(0, first, rows), head, setup);
    const at::Tensor weights = setup.row_weights.defined()
                                   ? setup.row_weights.narrow(0, first, rows).to(type)
                                   : at::Tensor();
    const at::Tensor losses = at::stack({terms.ce, terms.kl}).to(at::kDouble);  // [2, rows]
    sums.add_((weights.defined() ? losses * weights : losses).sum(1));
    if (!setup.want_grads) continue;
    if (weights.defined()) terms.grad.mul_(weights.unsqueeze(1));
    const at::Tensor grad = terms.grad.mul_(setup.grad_scale).to(x.scalar_type());
    const at::Tensor grad_rows = out.grad_x.narrow(0, first, rows);
    ops::put_product(grad, head.weight, grad_rows);
    if (head.trained) out.grad_weight.add_(ops::outer_product(grad, inputs));
  }
  out.ce_sum = sums[0];
  out.kl_sum = sums[1];
  out.loss_sum =
      sums[0] * setup.alpha + sums[1] * ((1 - setup.alpha) * setup.temperature * setup.temperature);
  return out;
}

}  // namespace trireme
