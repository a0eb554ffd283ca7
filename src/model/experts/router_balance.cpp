#include "model/experts/router_balance.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "parallel/collectives.hpp"

namespace trireme::model {
namespace {

bool by_sequence(const MoeConfig& moe) {
  return moe.router_aux_loss == "sequence";
}

/// Returns [N] int64: the index of the sum that counts each token, or -1 for padding.
at::Tensor sum_of_token(const MoeConfig& moe, const parallel::Microbatch& batch) {
  if (batch.sequence_of.defined()) {  // true for batches of preference pairs, even if empty
    const at::Tensor sequences = batch.sequence_of.flatten();
    return by_sequence(moe) ? sequences : sequences.clamp_max(0);
  }
  const at::Tensor rows =
      at::arange(by_sequence(moe) ? batch.rows() : 1, batch.tokens.options().dtype(at::kLong))
          .unsqueeze(1)
          .expand(batch.tokens.sizes());
  return (batch.padding.defined() ? rows.masked_fill(batch.padding, -1) : rows).flatten();
}

/// Returns [num_sums, E + 1] fp64: assignments to each expert, then the number of tokens.
at::Tensor totals_of(const at::Tensor& experts, const at::Tensor& sum_of, std::int64_t num_sums,
                     std::int64_t num_experts) {
  const at::Tensor place = sum_of.clamp_min(0);
  const at::Tensor ones = sum_of.ge(0).to(at::kDouble);
  const at::Tensor totals = at::zeros({num_sums, num_experts + 1}, ones.options());
  const at::Tensor index = place.mul(num_experts + 1).unsqueeze(1).add(experts);
  totals.flatten().scatter_add_(0, index.flatten(),
                                ones.unsqueeze(1).expand(experts.sizes()).flatten());
  totals.select(1, num_experts).scatter_add_(0, place, ones);
  return totals;
}

}  // namespace

void RouterStatistics::reset(const MoeConfig& moe, std::int64_t num_layers, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kDouble).device(device);
  aux_loss = at::zeros({}, options);
  counts = at::zeros({num_layers, moe.num_experts}, options);
}

std::int64_t aux_loss_terms(const MoeConfig& moe, const parallel::Microbatch& batch) {
  if (!by_sequence(moe)) return 1;
  const bool samples_are_pairs = batch.sequence_of.defined();
  return samples_are_pairs ? std::max<std::int64_t>(2 * batch.num_pairs, 1) : batch.rows();
}

at::Tensor assignments(const parallel::Microbatch& batch, const at::Tensor& experts,
                       std::int64_t num_experts) {
  const at::Tensor sum_of = sum_of_token({.router_aux_loss = "micro_batch"}, batch);
  return totals_of(experts, sum_of, 1, num_experts)[0].narrow(0, 0, num_experts);
}

at::Tensor balance_router(const MoeConfig& moe, const parallel::Microbatch& batch,
                          const at::Tensor& scores, const at::Tensor& experts,
                          const parallel::ContextGroup& context, std::int64_t layer,
                          RouterStatistics& statistics) {
  const std::int64_t num_sums = aux_loss_terms(moe, batch);
  const std::int64_t num_experts = moe.num_experts;
  const at::Tensor sum_of = sum_of_token(moe, batch);  // [N]
  const at::Tensor place = sum_of.clamp_min(0);
  const at::Tensor totals = totals_of(experts, sum_of, num_sums, num_experts);
  statistics.counts[layer].add_(totals.narrow(1, 0, num_experts).sum(0));
  if (!moe.has_aux_loss()) return {};

  if (context.size() > 1)
    parallel::all_reduce(*context.group, totals, comm::ReduceOp::sum, "assignments of experts")
        ->wait();
  const at::Tensor tokens = totals.narrow(1, num_experts, 1).clamp_min(1);  // [sums, 1]
  const double per_choice =
      by_sequence(moe) ? 1.0 / static_cast<double>(moe.num_experts_per_tok) : 1.0;
  const double factor =
      moe.router_aux_loss_coef * batch.aux_weight * static_cast<double>(num_experts) * per_choice;
  const at::Tensor of_sums =
      totals.narrow(1, 0, num_experts).mul(factor).div_(tokens.square());  // [sums, E]
  const at::Tensor grad =
      of_sums.index_select(0, place).mul_(sum_of.ge(0).unsqueeze(1)).to(scores.scalar_type());
  if (moe.router_score == "softmax") {
    statistics.aux_loss.add_((grad * scores).sum(at::kDouble));
    return grad;
  }
  const at::Tensor all = scores.sum(1, /*keepdim=*/true);
  const at::Tensor parts = scores / all;
  const at::Tensor of_token = (grad * parts).sum(1, /*keepdim=*/true);
  statistics.aux_loss.add_(of_token.sum(at::kDouble));
  return (grad - of_token) / all;
}

}  // namespace trireme::model
