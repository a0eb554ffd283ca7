#include <ATen/ATen.h>

#include <limits>

#include "ops/attention/kernels.hpp"

namespace trireme::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor places_tensor(const RowPlaces& places, std::int64_t batch, std::int64_t length) {
  if (places.empty()) return at::arange(length, at::kLong).expand({batch, length});
  std::vector<at::Tensor> rows;
  for (const auto& row : places) {
    std::vector<at::Tensor> parts{at::empty({0}, at::kLong)};
    for (const TokenRange& range : row)
      parts.push_back(at::arange(range.first, range.first + range.length, at::kLong));
    rows.push_back(at::cat(parts));
  }
  return at::stack(rows);  // [B, T]
}

/// The number of every token's document.
at::Tensor documents_tensor(const at::Tensor& places, const RowBounds& bounds) {
  std::vector<at::Tensor> rows;
  for (std::size_t row = 0; row < bounds.size(); ++row) {
    rows.push_back(at::bucketize(places[static_cast<std::int64_t>(row)].contiguous(),
                                 at::tensor(bounds[row], at::kLong), false, /*right=*/true));
  }
  return at::stack(rows);  // [B, T]
}

at::Tensor plain_scores(const at::Tensor& q, const at::Tensor& k, const AttentionSetup& setup) {
  auto scores = at::matmul(q, k.transpose(-2, -1)).mul_(setup.scale);  // [B, H, Tq, Tk]
  if (setup.causal || !setup.bounds.empty()) {
    const auto length = setup.query_places.empty() ? q.size(2) : k.size(2);
    const auto mask = attention_mask(setup, q.size(0), length, q.device());
    scores.masked_fill_(mask.logical_not().unsqueeze(1), -kInfinity);
  }
  return scores;
}

}  // namespace

at::Tensor repeat_heads(const at::Tensor& x, std::int64_t num_heads) {
  return x.repeat_interleave(num_heads / x.size(1), 1);
}

at::Tensor tokens_first(const at::Tensor& x) {
  return x.transpose(1, 2).contiguous().transpose(1, 2);
}

at::Tensor attention_mask(const AttentionSetup& setup, std::int64_t batch, std::int64_t length,
                          at::Device device) {
  const std::int64_t rows = setup.bounds.empty() && setup.whole_rows() ? 1 : batch;
  const auto queries = places_tensor(setup.query_places, rows, length);
  const auto keys = places_tensor(setup.key_places, rows, length);
  check_attention(setup, batch, queries.size(1), keys.size(1));
  auto mask = at::ones({rows, queries.size(1), keys.size(1)}, at::kBool);
  if (setup.causal) mask.logical_and_(keys.unsqueeze(1) <= queries.unsqueeze(2));
  if (!setup.bounds.empty()) {
    mask.logical_and_(documents_tensor(queries, setup.bounds).unsqueeze(2) ==
                      documents_tensor(keys, setup.bounds).unsqueeze(1));
  }
  return mask.to(device).expand({batch, -1, -1});
}

AttentionOutput plain_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup) {
  const auto type = accumulate_type(q);
  const auto keys = repeat_heads(k.to(type), q.size(1));
  const auto values = repeat_heads(v.to(type), q.size(1));
  const auto scores = plain_scores(q.to(type), keys, setup);
  const auto lse = at::logsumexp(scores, {-1});
  auto weights = at::softmax(scores, -1);
  // A softmax over no key is NaN.
  if (!setup.whole_rows()) weights.masked_fill_((lse == -kInfinity).unsqueeze(-1), 0.0);
  return {tokens_first(at::matmul(weights, values).to(result_type(q, setup))), lse};
}

AttentionGrads plain_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const AttentionOutput& forward,
                              const AttentionSetup& setup) {
  const auto type = accumulate_type(q);
  const auto result = result_type(q, setup);
  const auto queries = q.to(type);
  const auto keys = repeat_heads(k.to(type), q.size(1));
  const auto values = repeat_heads(v.to(type), q.size(1));
  const auto incoming = grad_out.to(type);
  // A query without keys has lse -inf: with +inf all its weights are 0.
  const auto lse = setup.whole_rows()
                       ? forward.lse
                       : forward.lse.masked_fill(forward.lse == -kInfinity, kInfinity);
  const auto weights = (plain_scores(queries, keys, setup) - lse.unsqueeze(-1)).exp_();
  const auto along = (incoming * forward.out.to(type)).sum(-1, /*keepdim=*/true);  // [B, H, Tq, 1]
  const auto grad_weights = at::matmul(incoming, values.transpose(-2, -1));
  const auto grad_scores = (grad_weights - along).mul_(weights).mul_(setup.scale);
  const auto sum_groups = [&](const at::Tensor& grad) {
    return grad.unflatten(1, {k.size(1), q.size(1) / k.size(1)}).sum(2).to(result);
  };
  return {at::matmul(grad_scores, keys).to(result),
          sum_groups(at::matmul(grad_scores.transpose(-2, -1), queries)),
          sum_groups(at::matmul(weights.transpose(-2, -1), incoming))};
}

}  // namespace trireme::ops
