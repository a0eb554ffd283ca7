#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "objective/distillation.hpp"
#include "ops/product.hpp"
#include "parallel/collectives.hpp"

namespace trireme::objective {
namespace {

struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  [[nodiscard]] std::int64_t end() const { return first + count; }
};

RowRange common(const RowRange& a, const RowRange& b) {
  const std::int64_t first = std::max(a.first, b.first);
  return {first, std::max<std::int64_t>(0, std::min(a.end(), b.end()) - first)};
}

/// The classes of student and teacher on every rank of the group.
struct VocabSplits {
  std::vector<RowRange> student;
  std::vector<RowRange> teacher;
};

VocabSplits gather_splits(const Head& student, const Head& teacher) {
  const auto options = at::TensorOptions(at::kLong).device(student.weight.device());
  const at::Tensor own = at::tensor(
      {student.first, student.weight.size(0), teacher.first, teacher.weight.size(0)}, options);
  const at::Tensor all = at::empty({4 * student.tensor.size()}, options);
  parallel::all_gather(student.tensor.group(), own, all, "vocabulary splits")->wait();
  const at::Tensor host = all.to(at::kCPU);
  const std::int64_t* values = host.const_data_ptr<std::int64_t>();
  VocabSplits splits;
  for (int rank = 0; rank < student.tensor.size(); ++rank, values += 4) {
    splits.student.push_back({values[0], values[1]});
    splits.teacher.push_back({values[2], values[3]});
  }
  return splits;
}

std::int64_t shared_classes(const Head& student, const Head& teacher) {
  return std::min(student.classes, teacher.classes);
}

/// Returns the teacher's head rows for the student's classes on this rank, limited to classes that
/// both models have. If both vocabularies are split the same way, the result is a view. Otherwise
/// ranks exchange the rows that lie on another rank.
at::Tensor teacher_rows(const Head& student, const Head& teacher) {
  const std::int64_t shared = shared_classes(student, teacher);
  const auto wanted = [&](const RowRange& own) { return common(own, {0, shared}); };
  const RowRange own = wanted({student.first, student.weight.size(0)});
  if (student.tensor.size() == 1)
    return teacher.weight.narrow(0, own.first - teacher.first, own.count);
  if (student.classes == teacher.classes) return teacher.weight;
  const VocabSplits splits = gather_splits(student, teacher);
  const auto rank = static_cast<std::size_t>(student.tensor.rank());

  struct Missing {
    std::size_t of;    // rank that needs the rows
    std::size_t from;  // rank that holds the rows
    RowRange rows;
    std::int64_t offset;  // offset in the buffer
  };

  std::vector<Missing> missing;
  std::int64_t total = 0;
  for (std::size_t of = 0; of < splits.student.size(); ++of) {
    for (std::size_t from = 0; from < splits.teacher.size(); ++from) {
      const RowRange rows = common(wanted(splits.student[of]), splits.teacher[from]);
      if (of == from || rows.count == 0) continue;
      missing.push_back({of, from, rows, total});
      total += rows.count;
    }
  }
  // Each row comes from one rank and all others add zeros, so the sum is exact.
  const at::Tensor buffer = at::zeros({total, teacher.weight.size(1)}, teacher.weight.options());
  for (const Missing& one : missing) {
    if (one.from == rank)
      buffer.narrow(0, one.offset, one.rows.count)
          .copy_(teacher.weight.narrow(0, one.rows.first - teacher.first, one.rows.count));
  }
  if (total > 0)
    parallel::all_reduce(student.tensor.group(), buffer, comm::ReduceOp::sum, "teacher rows")
        ->wait();
  const at::Tensor rows = at::empty({own.count, teacher.weight.size(1)}, teacher.weight.options());
  const RowRange here = common(own, splits.teacher[rank]);
  if (here.count > 0)
    rows.narrow(0, here.first - own.first, here.count)
        .copy_(teacher.weight.narrow(0, here.first - teacher.first, here.count));
  for (const Missing& one : missing) {
    if (one.of == rank)
      rows.narrow(0, one.rows.first - own.first, one.rows.count)
          .copy_(buffer.narrow(0, one.offset, one.rows.count));
  }
  return rows;
}

/// Returns the maximum of each row of [rows, n]; -infinity if n is 0.
at::Tensor largest_of(const at::Tensor& logits) {
  if (logits.size(1) > 0) return logits.amax(1);
  return at::full({logits.size(0)}, -std::numeric_limits<double>::infinity(), logits.options());
}

/// The loss terms of the rows of one chunk, each [rows]. The cross entropy covers the student's
/// classes, the divergence the classes that both models have.
struct ChunkTerms {
  at::Tensor ce;
  at::Tensor kl;
  at::Tensor grad;  // [rows, local classes]: d (alpha ce + (1 - alpha) T^2 kl) / d logits
};

/// Computes the terms from the logits of the student [rows, local classes] and of the teacher
/// [rows, local shared classes]; both are overwritten. `shared_of_both` is the number of shared
/// classes on all ranks.
ChunkTerms chunk_terms(const at::Tensor& logits, const at::Tensor& teacher,
                       const at::Tensor& targets, const Head& head, std::int64_t shared_of_both,
                       const DistillationSetup& setup) {
  const std::int64_t rows = logits.size(0);
  const bool alone = head.tensor.size() == 1;
  const std::int64_t shared = teacher.size(1);
  const auto shared_of = [&](const at::Tensor& all) { return all.narrow(1, 0, shared); };
  std::vector<at::Tensor> maxima{logits.amax(1), largest_of(teacher)};
  if (shared_of_both < head.classes) maxima.push_back(largest_of(shared_of(logits)));
  const at::Tensor largest = at::stack(maxima);
  if (!alone)
    parallel::all_reduce(head.tensor.group(), largest, comm::ReduceOp::max, "loss maxima")->wait();
  const at::Tensor warm = (shared_of(logits) - largest[maxima.size() == 3 ? 2 : 0].unsqueeze(1))
                              .div_(setup.temperature);
  logits.sub_(largest[0].unsqueeze(1));
  teacher.sub_(largest[1].unsqueeze(1)).div_(setup.temperature);

  const at::Tensor local = targets - head.first;
  const at::Tensor own = local.ge(0).logical_and_(local.lt(logits.size(1)));
  const at::Tensor picks = local.masked_fill(own.logical_not(), 0).unsqueeze(1);  // [rows, 1]
  const at::Tensor sums = at::empty({5, rows}, logits.options());
  sums[0].copy_(logits.gather(1, picks).squeeze(1).masked_fill_(own.logical_not(), 0));
  const at::Tensor teacher_exp = teacher.exp();
  sums[1].copy_(teacher_exp.sum(1));
  sums[2].copy_(teacher.sub_(warm).mul_(teacher_exp).sum(1));
  const at::Tensor warm_exp = warm.exp_();
  sums[3].copy_(warm_exp.sum(1));
  const at::Tensor exponentials = logits.exp_();
  sums[4].copy_(exponentials.sum(1));
  if (!alone)
    parallel::all_reduce(head.tensor.group(), sums, comm::ReduceOp::sum, "loss sums")->wait();

  ChunkTerms terms;
  terms.ce = sums[4].log() - sums[0];
  terms.kl = sums[2] / sums[1] + sums[3].log() - sums[1].log();
  if (!setup.want_grads) return terms;
  const double of_kl =
      (1 - setup.alpha) * setup.temperature;  // T^2 from the loss, 1 / T from the logits
  terms.grad = exponentials.mul_((setup.alpha / sums[4]).unsqueeze(1));
  terms.grad.scatter_add_(1, picks, own.to(logits.scalar_type()).mul_(-setup.alpha).unsqueeze(1));
  const at::Tensor grad_shared = shared_of(terms.grad);
  grad_shared.addcmul_(warm_exp, (of_kl / sums[3]).unsqueeze(1));
  grad_shared.addcmul_(teacher_exp, (of_kl / sums[1]).unsqueeze(1), -1);
  return terms;
}

}  // namespace

DistillationOutput linear_distillation(const at::Tensor& x, const Head& head,
                                       const at::Tensor& teacher_x, const Head& teacher,
                                       const at::Tensor& targets, const DistillationSetup& setup) {
  const at::NoGradGuard no_grad;
  TRIREME_ASSERT(teacher_x.size(0) == x.size(0) && targets.size(0) == x.size(0));
  if (!setup.targets_checked) check_targets(targets, head.classes);
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
    const at::Tensor logits = ops::product(inputs, head.weight.t()).to(type);
    const at::Tensor slope = cap_logits(logits, head.softcap, setup.want_grads);
    const at::Tensor of_teacher =
        ops::product(teacher_x.narrow(0, first, rows), teacher_weight.t()).to(type);
    cap_logits(of_teacher, teacher.softcap, /*want_slope=*/false);
    const ChunkTerms terms = chunk_terms(logits, of_teacher, targets.narrow(0, first, rows), head,
                                         shared_classes(head, teacher), setup);
    const at::Tensor weights = setup.row_weights.defined()
                                   ? setup.row_weights.narrow(0, first, rows).to(type)
                                   : at::Tensor();
    const at::Tensor losses = at::stack({terms.ce, terms.kl}).to(at::kDouble);  // [2, rows]
    sums.add_((weights.defined() ? losses * weights : losses).sum(1));
    if (!setup.want_grads) continue;
    if (slope.defined()) terms.grad.mul_(slope);
    if (weights.defined()) terms.grad.mul_(weights.unsqueeze(1));
    const at::Tensor grad = terms.grad.mul_(setup.grad_scale).to(x.scalar_type());
    const at::Tensor grad_rows = out.grad_x.narrow(0, first, rows);
    ops::put_product(grad, head.weight, grad_rows);
    if (head.trained) ops::add_outer_product(grad, inputs, out.grad_weight);
  }
  out.ce_sum = sums[0];
  out.kl_sum = sums[1];
  out.loss_sum =
      sums[0] * setup.alpha + sums[1] * ((1 - setup.alpha) * setup.temperature * setup.temperature);
  return out;
}

}  // namespace trireme::objective
