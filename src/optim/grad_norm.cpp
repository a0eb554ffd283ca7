#include "optim/grad_norm.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/exact_sum.hpp"
#include "optim/block_squares.hpp"
#include "parallel/collectives.hpp"

namespace trireme {
namespace {

constexpr auto kWords = static_cast<std::int64_t>(ExactSum::kWords);

/// Of the elements that this rank answers for; neighbours as one range.
at::Tensor words_of_squares(const ParamRegistry& registry) {
  const at::Tensor words =
      at::zeros({kWords + 1}, at::TensorOptions().dtype(at::kLong).device(registry.device()));
  const UnitLayout& layout = registry.layout();
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    const at::Tensor grads = registry.grad_part(unit);
    const std::int64_t part_begin = layout.part(unit).begin;
    IndexRange range;
    const auto add = [&] {
      if (range.count() > 0)
        add_block_squares(grads.narrow(0, range.begin - part_begin, range.count()), range.begin,
                          words);
    };
    for (const ParamSpan& span : layout.owned_spans(unit)) {
      if (span.begin != range.end) {
        add();
        range.begin = span.begin;
      }
      range.end = span.begin + span.count;
    }
    add();
  }
  return words;
}

}  // namespace

GradSummary summarize_grads(const ParamRegistry& registry, Communicator& world,
                            const at::Tensor& loss_sum) {
  const at::NoGradGuard no_grad;
  const at::Tensor words = words_of_squares(registry);
  words.select(0, kWords).add_(loss_sum.isfinite().logical_not());
  all_reduce(world, words, ReduceOp::sum, "norm")->wait();
  const at::Tensor known =
      at::cat({words, loss_sum.to(at::kDouble).reshape({1}).view(at::kLong)}).to(at::kCPU);
  const auto* const numbers = known.const_data_ptr<std::int64_t>();
  ExactSum squares;
  std::copy(numbers, numbers + kWords + 1, squares.words().begin());
  return {std::sqrt(squares.value()), squares.num_not_finite() == 0,
          std::bit_cast<double>(numbers[kWords + 1])};
}

double clip_factor(double norm, double clip_norm) {
  return clip_norm > 0 ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace trireme
