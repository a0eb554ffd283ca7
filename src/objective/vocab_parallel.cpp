#include "objective/vocab_parallel.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/operation_record.hpp"
#include "objective/vocab_chunk.hpp"
#include "ops/product.hpp"
#include "parallel/collectives.hpp"

namespace trireme::objective {

LinearCrossEntropyOutput vocab_parallel_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                                      const at::Tensor& targets,
                                                      const VocabShard& part,
                                                      const LinearCrossEntropySetup& setup,
                                                      ops::Path path) {
  const at::NoGradGuard no_grad;
  if (!setup.targets_checked) check_targets(targets, part.classes);
  const OperationMark mark(StepWork::head);
  const auto type = ops::accumulate_type(x);
  LinearCrossEntropyOutput out;
  const at::Tensor losses = at::zeros({x.size(0)}, x.options().dtype(type));
  if (setup.want_grads) {
    out.grad_x = at::empty_like(x, at::MemoryFormat::Contiguous);
    if (setup.want_grad_weight)
      out.grad_weight = at::zeros(weight.sizes(), weight.options().dtype(type));
  }
  for (std::int64_t first = 0; first < x.size(0); first += setup.chunk_rows) {
    const std::int64_t rows = std::min(setup.chunk_rows, x.size(0) - first);
    const at::Tensor inputs = x.narrow(0, first, rows);
    const at::Tensor weights = setup.row_weights.defined()
                                   ? setup.row_weights.narrow(0, first, rows).to(type)
                                   : at::Tensor();
    const at::Tensor logits = ops::product(inputs, weight.t());
    const at::Tensor slope = cap_logits(logits, setup.softcap, setup.want_grads);
    const at::Tensor grad = vocab_chunk(
        {logits, targets.narrow(0, first, rows), weights, losses.narrow(0, first, rows)}, part,
        setup, path);
    if (!setup.want_grads) continue;
    if (slope.defined()) grad.mul_(slope);
    const at::Tensor grad_rows = out.grad_x.narrow(0, first, rows);
    ops::put_product(grad, weight, grad_rows);
    if (setup.want_grad_weight) ops::add_outer_product(grad, inputs, out.grad_weight);
  }
  out.loss_sum = losses.sum();
  return out;
}

TokenScores vocab_parallel_token_scores(const at::Tensor& x, const at::Tensor& weight,
                                        const at::Tensor& targets, const VocabShard& part,
                                        const TokenScoresSetup& setup) {
  const at::NoGradGuard no_grad;
  if (!setup.targets_checked) check_targets(targets, part.classes);
  const auto type = ops::accumulate_type(x);
  TokenScores out;
  out.log_probs = at::empty({x.size(0)}, x.options().dtype(at::kDouble));
  if (setup.want_correct) out.correct = at::empty({x.size(0)}, targets.options().dtype(at::kBool));
  const at::Tensor classes = at::arange(weight.size(0), targets.options());
  for (std::int64_t first = 0; first < x.size(0); first += setup.chunk_rows) {
    const std::int64_t rows = std::min(setup.chunk_rows, x.size(0) - first);
    const at::Tensor chunk_targets = targets.narrow(0, first, rows);
    const auto [valid, own, picks] = row_targets(chunk_targets, part, weight.size(0));
    const at::Tensor scores = ops::product(x.narrow(0, first, rows), weight.t()).to(type);
    cap_logits(scores, setup.softcap, /*want_slope=*/false);
    subtract_largest(scores, part.group);
    // Exponentials, the target's score, and the number of earlier classes with the largest score.
    const at::Tensor sums = at::zeros({setup.want_correct ? 3 : 2, rows}, scores.options());
    sums[1].copy_(scores.gather(1, picks).squeeze(1).masked_fill_(own.logical_not(), 0));
    if (setup.want_correct) {
      const at::Tensor before = classes.lt((chunk_targets - part.first).unsqueeze(1));
      sums[2].copy_(scores.eq(0).logical_and_(before).sum(1));
    }
    sums[0].copy_(scores.exp().sum(1));
    parallel::all_reduce(part.group, sums, comm::ReduceOp::sum, "loss sums")->wait();
    const at::Tensor log_probs = sums[1] - sums[0].log();
    out.log_probs.narrow(0, first, rows).copy_(log_probs.masked_fill_(valid.logical_not(), 0));
    if (setup.want_correct) {
      out.correct.narrow(0, first, rows)
          .copy_(valid.logical_and(sums[1].eq(0)).logical_and_(sums[2].eq(0)));
    }
  }
  return out;
}

}  // namespace trireme::objective
