#include <ATen/ATen.h>

#include <limits>

#include "ops/attention/kernels.hpp"

namespace trireme::ops {

void merge_attention(AttentionOutput& sum, const AttentionOutput& part) {
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const auto type = accumulate_type(sum.out);
  const auto lse = at::logaddexp(sum.lse, part.lse);
  // No key in either: -inf - -inf is NaN, -inf - 0 gives weights of 0.
  const auto base = lse.masked_fill(lse == kLowest, 0.0);
  const auto weight = [&](const at::Tensor& of) { return (of - base).exp_().unsqueeze(-1); };
  sum.out = tokens_first(
      (sum.out.to(type) * weight(sum.lse)).addcmul_(part.out.to(type), weight(part.lse)));
  sum.lse = lse;
}

}  // namespace trireme::ops
