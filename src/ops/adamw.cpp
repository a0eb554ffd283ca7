#include "ops/adamw.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "ops/cpu_rows.hpp"
#include "ops/cuda/adamw.hpp"

namespace trireme::ops {
namespace {

/// Least elements of a thread.
constexpr std::int64_t kElementsOfThread = std::int64_t{1} << 14;

bool cpu_accepts_adamw(const AdamWTensors& piece) {
  return piece.weights.is_cpu() && piece.weights.scalar_type() == at::kFloat &&
         piece.grads.is_cpu() && (!piece.copy.defined() || cpu_accepts(piece.copy));
}

void cpu_adamw(const std::vector<AdamWTensors>& pieces, const AdamWNumbers& numbers,
               const at::Tensor& factor) {
  const auto on_grads = factor.item<float>();
  if (!std::isfinite(on_grads)) return;
  const AdamWRates rates(numbers);
  for (const AdamWTensors& piece : pieces) {
    const kernels::AdamW all{
        .copy_element = piece.copy.defined() ? element_of(piece.copy) : kernels::Element::f32,
        .copy = piece.copy.defined() ? piece.copy.data_ptr() : nullptr,
        .weights = piece.weights.data_ptr<float>(),
        .grads = piece.grads.const_data_ptr<float>(),
        .exp_avg = piece.exp_avg.data_ptr<float>(),
        .exp_avg_sq = piece.exp_avg_sq.data_ptr<float>(),
        .first = 0,
        .last = piece.weights.numel(),
        .factor = on_grads,
        .keep = static_cast<float>(1 - numbers.lr * piece.decay),
        .rate1 = rates.rate1,
        .rate2 = rates.rate2,
        .step_size = rates.step_size,
        .inverse_root = rates.inverse_root,
        .eps = rates.eps};
    at::parallel_for(0, all.last, kElementsOfThread, [&](std::int64_t first, std::int64_t last) {
      kernels::AdamW part = all;
      part.first = first;
      part.last = last;
      kernels::table().adamw(part);
    });
  }
}

struct AdamWRow {
  bool (*accepts)(const AdamWTensors& piece);
  decltype(&cpu_adamw) apply;
};

/// There is no plain row: where no row accepts the tensors, the optimizer calls LibTorch.
constexpr std::array kAdamW{
    AdamWRow{cpu_accepts_adamw, cpu_adamw},
    AdamWRow{cuda::accepts_adamw, cuda::adamw},
};

/// Returns the first row that accepts the piece, or null.
const AdamWRow* row_of(const AdamWTensors& piece) {
  const auto* const row =
      std::ranges::find_if(kAdamW, [&](const AdamWRow& one) { return one.accepts(piece); });
  return row == kAdamW.end() ? nullptr : row;
}

}  // namespace

AdamWRates::AdamWRates(const AdamWNumbers& numbers)
    : rate1(static_cast<float>(1 - numbers.beta1)),
      rate2(static_cast<float>(1 - numbers.beta2)),
      step_size(static_cast<float>(
          numbers.lr / (1 - std::pow(numbers.beta1, static_cast<double>(numbers.update))))),
      inverse_root(static_cast<float>(
          1 / std::sqrt(1 - std::pow(numbers.beta2, static_cast<double>(numbers.update))))),
      eps(static_cast<float>(numbers.eps)) {}

bool accepts_adamw(const AdamWTensors& piece) {
  return row_of(piece) != nullptr;
}

void adamw(const std::vector<AdamWTensors>& pieces, const AdamWNumbers& numbers,
           const at::Tensor& factor) {
  if (pieces.empty()) return;
  const AdamWRow* const row = row_of(pieces.front());
  TRIREME_ASSERT(row != nullptr);
  row->apply(pieces, numbers, factor);
}

}  // namespace trireme::ops
