#include "optim/grad_norm.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/exact_sum.hpp"
#include "ops/cuda/grad_norm.hpp"
#include "optim/block_squares.hpp"
#include "parallel/collectives.hpp"

namespace trireme::optim {
namespace {

constexpr auto kWords = static_cast<std::int64_t>(ExactSum::kWords);

/// Returns the words of the sum of squares and the count of non-finite numbers, over the elements
/// that this rank owns: its owned shard, or its whole local shard if `of_part`. Adjacent elements
/// are summed as one range.
at::Tensor words_of_squares(const parallel::ParamRegistry& registry, bool of_part,
                            const at::Tensor& loss_sum) {
  const at::Tensor words =
      at::zeros({kWords + 1}, at::TensorOptions().dtype(at::kLong).device(registry.device()));
  const parallel::UnitLayout& layout = registry.layout();
  for (const std::size_t unit : layout.trainable_units()) {
    const at::Tensor grads = registry.grad_part(unit);
    const std::int64_t part_begin = layout.part(unit).begin;
    parallel::IndexRange range;
    const auto add = [&] {
      if (range.count() > 0)
        add_block_squares(grads.narrow(0, range.begin - part_begin, range.count()), range.begin,
                          words);
    };
    for (const parallel::ParamSpan& span :
         layout.owned_spans(unit, of_part ? layout.part(unit) : layout.share(unit))) {
      if (registry.spec(span.id).sign_rate > 0) continue;
      if (span.begin != range.end) {
        add();
        range.begin = span.begin;
      }
      range.end = span.begin + span.count;
    }
    add();
  }
  words.select(0, kWords).add_(loss_sum.isfinite().logical_not());
  return words;
}

ExactSum squares_of(const std::int64_t* words) {
  ExactSum squares;
  std::copy(words, words + kWords + 1, squares.words().begin());
  return squares;
}

at::Tensor joined(std::vector<at::Tensor> parts, const at::Tensor& loss_sum) {
  parts.push_back(loss_sum.to(at::kDouble).reshape({1}).view(at::kLong));
  return at::cat(parts);
}

}  // namespace

GradSums sum_grads(const parallel::ParamRegistry& registry, comm::Communicator& world,
                   const at::Tensor& loss_sum) {
  const at::NoGradGuard no_grad;
  GradSums sums;
  sums.words = words_of_squares(registry, /*of_part=*/false, loss_sum);
  parallel::all_reduce(world, sums.words, comm::ReduceOp::sum, "norm")->wait();
  sums.all = device::HostCopy(joined({sums.words}, loss_sum));
  return sums;
}

GradSummary summary_of(const GradSums& sums) {
  const auto* const numbers = sums.all.read().const_data_ptr<std::int64_t>();
  const ExactSum squares = squares_of(numbers);
  const double norm = std::sqrt(squares.value());
  return {norm, norm, squares.num_not_finite() == 0, std::bit_cast<double>(numbers[kWords + 1])};
}

GradSummary summarize_grads(const parallel::ParamRegistry& registry, comm::Communicator& world,
                            const at::Tensor& loss_sum) {
  return summary_of(sum_grads(registry, world, loss_sum));
}

GradSummary summarize_own_grads(const parallel::ParamRegistry& registry, const parallel::Mesh& mesh,
                                const at::Tensor& loss_sum) {
  const at::NoGradGuard no_grad;
  // Ranks of cp have identical sums, so each rank counts all of them.
  const at::Tensor own = words_of_squares(registry, /*of_part=*/true, loss_sum);
  parallel::all_reduce(mesh.group(parallel::Axis::tp), own, comm::ReduceOp::sum, "norm")->wait();
  const at::Tensor all = own.clone();
  parallel::all_reduce(mesh.group(parallel::Axis::data), all, comm::ReduceOp::sum,
                       "norm of data ranks")
      ->wait();
  const device::HostCopy known(joined({own, all}, loss_sum));
  const auto* const numbers = known.read().const_data_ptr<std::int64_t>();
  const ExactSum squares = squares_of(numbers + kWords + 1);
  return {std::sqrt(squares.value() / mesh.size(parallel::Axis::data)),
          std::sqrt(squares_of(numbers).value()), squares.num_not_finite() == 0,
          std::bit_cast<double>(numbers[2 * (kWords + 1)])};
}

double clip_factor(double norm, double clip_norm) {
  return clip_norm > 0 ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1.0;
}

at::Tensor device_clip_factor(const GradSums& sums, double clip_norm, double loss_scale) {
  return ops::cuda::clip_factor(sums.words, clip_norm, loss_scale);
}

}  // namespace trireme::optim
