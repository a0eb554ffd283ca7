#include "objective/vocab_chunk.hpp"

#include <ATen/ATen.h>

#include "ops/cuda/cross_entropy.hpp"
#include "ops/operations.hpp"
#include "parallel/collectives.hpp"

namespace trireme::objective {
namespace {

struct VocabChunkRow {
  bool (*accepts)(const at::Tensor& logits);
  VocabChunkFunction* chunk;
};

constexpr std::array kVocabChunk{
    VocabChunkRow{ops::cuda::accepts_cross_entropy, cuda_vocab_chunk},
    VocabChunkRow{nullptr, plain_vocab_chunk},
};

}  // namespace

RowTargets row_targets(const at::Tensor& targets, const VocabShard& part, std::int64_t classes) {
  const at::Tensor valid = targets.ne(kIgnoredTarget);
  const at::Tensor local = targets - part.first;
  const at::Tensor own = valid.logical_and(local.ge(0)).logical_and(local.lt(classes));
  return {valid, own, local.masked_fill(own.logical_not(), 0).unsqueeze(1)};
}

void subtract_largest(const at::Tensor& scores, comm::Communicator& group) {
  const at::Tensor largest = scores.amax(1);
  parallel::all_reduce(group, largest, comm::ReduceOp::max, "loss maxima")->wait();
  scores.sub_(largest.unsqueeze(1));
}

at::Tensor plain_vocab_chunk(const VocabChunk& chunk, const VocabShard& part,
                             const LinearCrossEntropySetup& setup) {
  const auto type = chunk.losses.scalar_type();
  const auto [valid, own, picks] = row_targets(chunk.targets, part, chunk.logits.size(1));
  at::Tensor scores = chunk.logits.to(type);  // [rows, this rank's classes]
  subtract_largest(scores, part.group);
  const at::Tensor sums = at::empty({2, scores.size(0)}, scores.options());
  sums[1].copy_(scores.gather(1, picks).squeeze(1).masked_fill_(own.logical_not(), 0));
  scores.exp_();
  sums[0].copy_(scores.sum(1));
  parallel::all_reduce(part.group, sums, comm::ReduceOp::sum, "loss sums")->wait();
  at::Tensor loss = sums[0].log().sub_(sums[1]).masked_fill_(valid.logical_not(), 0);
  at::Tensor factors = valid.to(type);
  scale_gradient(factors, setup);
  if (chunk.row_weights.defined()) {
    loss.mul_(chunk.row_weights);
    factors.mul_(chunk.row_weights);
  }
  chunk.losses.copy_(loss);
  if (!setup.want_grads) return {};
  scores.div_(sums[0].unsqueeze(1));
  scores.scatter_add_(1, picks, own.to(type).neg().unsqueeze(1));
  return scores.mul_(factors.unsqueeze(1)).to(chunk.logits.scalar_type());
}

at::Tensor cuda_vocab_chunk(const VocabChunk& chunk, const VocabShard& part,
                            const LinearCrossEntropySetup& setup) {
  const at::Tensor targets = chunk.targets.contiguous();
  const auto [valid, own, picks] = row_targets(targets, part, chunk.logits.size(1));
  const at::Tensor statistics = ops::cuda::class_statistics(chunk.logits, targets, part.first);
  const at::Tensor largest = statistics[0].clone();
  parallel::all_reduce(part.group, largest, comm::ReduceOp::max, "loss maxima")->wait();
  const at::Tensor sums = statistics.narrow(0, 1, 2);  // exponentials, target logit - largest
  sums[0].mul_((statistics[0] - largest).exp_());
  sums[1].sub_(largest).masked_fill_(own.logical_not(), 0);
  parallel::all_reduce(part.group, sums, comm::ReduceOp::sum, "loss sums")->wait();
  at::Tensor loss = sums[0].log().sub_(sums[1]).masked_fill_(valid.logical_not(), 0);
  if (chunk.row_weights.defined()) loss.mul_(chunk.row_weights);
  chunk.losses.copy_(loss);
  if (!setup.want_grads) return {};
  const at::Tensor weights =
      chunk.row_weights.defined() ? chunk.row_weights.contiguous() : at::Tensor();
  ops::cuda::class_gradient(chunk.logits, targets, weights, largest, sums[0], part.first,
                            {setup.grad_scale, setup.device_grad_scale});
  return chunk.logits;
}

at::Tensor vocab_chunk(const VocabChunk& chunk, const VocabShard& part,
                       const LinearCrossEntropySetup& setup, ops::Path path) {
  const ops::Path own = path_of(ops::Operation::cross_entropy, path);
  return choose(own, kVocabChunk, chunk.logits).chunk(chunk, part, setup);
}

}  // namespace trireme::objective
