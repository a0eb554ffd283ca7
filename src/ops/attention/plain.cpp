#include <ATen/ATen.h>

#include <algorithm>

#include "ops/attention/memo.hpp"
#include "ops/upload.hpp"

namespace trireme::ops {
namespace {

/// Computes the scores. With a soft-cap, `slope` is set to its derivative if it is not null.
at::Tensor plain_scores(const at::Tensor& q, const at::Tensor& k, const AttentionSetup& setup,
                        at::Tensor* slope = nullptr) {
  auto scores = at::matmul(q, k.transpose(-2, -1)).mul_(setup.scale);  // [B, H, Tq, Tk]
  if (setup.softcap > 0) {
    scores.div_(setup.softcap).tanh_();
    if (slope != nullptr) *slope = 1 - scores.square();
    scores.mul_(setup.softcap);
  }
  if (setup.masks()) {
    const auto length = setup.query_positions.empty() ? q.size(2) : k.size(2);
    const auto mask = attention_mask(setup, q.size(0), length, q.device());
    scores.masked_fill_(mask.logical_not().unsqueeze(1), -kInfinity);
  }
  return scores;
}

/// Returns [B, Tq, Tk] bool; [1, Tq, Tk] if all rows have the same mask.
at::Tensor host_mask(const AttentionPlan& plan, std::int64_t batch, std::int64_t num_queries,
                     std::int64_t num_keys) {
  const bool same = plan.empty() || plan.front().row < 0;
  const auto mask = at::zeros({same ? 1 : batch, num_queries, num_keys}, at::kBool);
  for (const DocumentPlan& document : plan) {
    const auto row = mask[std::max<std::int64_t>(document.row, 0)];
    for (const QueryPart& part : document.queries) {
      const auto queries = row.narrow(0, part.tokens.first, part.tokens.length);
      const auto seen = seen_keys(part);
      std::int64_t key = 0;
      for (const TokenRange& tokens : document.tokens_of(part.keys())) {
        queries.narrow(1, tokens.first, tokens.length).copy_(seen.narrow(1, key, tokens.length));
        key += tokens.length;
      }
    }
  }
  return mask;
}

}  // namespace

at::Tensor repeat_heads(const at::Tensor& x, std::int64_t num_heads) {
  return x.repeat_interleave(num_heads / x.size(1), 1);
}

AttentionOutput empty_output(const at::Tensor& q, const AttentionSetup& setup) {
  return {at::empty({q.size(0), q.size(2), q.size(1), q.size(3)},
                    q.options().dtype(result_type(q, setup)))
              .transpose(1, 2),
          at::empty({q.size(0), q.size(1), q.size(2)}, at::kFloat)};
}

at::Tensor sum_groups(const at::Tensor& grad, std::int64_t num_kv_heads, at::ScalarType type) {
  return grad.unflatten(1, {num_kv_heads, grad.size(1) / num_kv_heads}).sum(2).to(type);
}

at::Tensor tokens_first(const at::Tensor& x) {
  return x.transpose(1, 2).contiguous().transpose(1, 2);
}

at::Tensor seen_keys(const QueryPart& part) {
  const KeyInterval keys = part.keys();
  const auto key = at::arange(keys.begin, keys.end, at::kLong);
  const auto query = at::arange(part.tokens.length, at::kLong).unsqueeze(1);
  return (key - query * part.begin_moves >= part.first.begin)
      .logical_and_(key - query * part.end_moves < part.first.end);
}

at::Tensor attention_mask(const AttentionSetup& setup, std::int64_t batch, std::int64_t length,
                          at::Device device) {
  const auto length_of = [&](const RowPositions& positions) {
    if (positions.empty()) return length;
    std::int64_t count = 0;
    for (const TokenRange& range : positions.front()) count += range.length;
    return count;
  };
  const std::int64_t num_queries = length_of(setup.query_positions);
  const std::int64_t num_keys = length_of(setup.key_positions);
  const auto make = [&] {
    return upload(host_mask(plan_attention(setup, batch, num_queries, num_keys), batch, num_queries,
                            num_keys),
                  device);
  };
  // A stored mask saves an upload; host memory is saved instead.
  const at::Tensor mask = setup.memo && !device.is_cpu()
                              ? setup.memo->mask(setup, batch, num_queries, num_keys, device, make)
                              : make();
  return mask.expand({batch, -1, -1});
}

AttentionOutput plain_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup) {
  const auto type = accumulate_type(q);
  const auto keys = repeat_heads(k.to(type), q.size(1));
  const auto values = repeat_heads(v.to(type), q.size(1));
  const auto scores = plain_scores(q.to(type), keys, setup);
  const auto lse = at::logsumexp(scores, {-1});
  auto weights = at::softmax(scores, -1);
  // The softmax of a query without keys is NaN.
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
  // A query without keys has lse -inf; with +inf all its weights become 0.
  const auto lse = setup.whole_rows()
                       ? forward.lse
                       : forward.lse.masked_fill(forward.lse == -kInfinity, kInfinity);
  at::Tensor slope;
  const auto weights = (plain_scores(queries, keys, setup, &slope) - lse.unsqueeze(-1)).exp_();
  const auto along = (incoming * forward.out.to(type)).sum(-1, /*keepdim=*/true);  // [B, H, Tq, 1]
  const auto grad_weights = at::matmul(incoming, values.transpose(-2, -1));
  const auto grad_scores = (grad_weights - along).mul_(weights).mul_(setup.scale);
  if (slope.defined()) grad_scores.mul_(slope);
  return {at::matmul(grad_scores, keys).to(result),
          sum_groups(at::matmul(grad_scores.transpose(-2, -1), queries), k.size(1), result),
          sum_groups(at::matmul(weights.transpose(-2, -1), incoming), k.size(1), result)};
}

void merge_attention(AttentionOutput& sum, const AttentionOutput& part) {
  const auto type = accumulate_type(sum.out);
  const auto lse = at::logaddexp(sum.lse, part.lse);
  // Without keys in both parts, -inf - -inf would be NaN, whereas -inf - 0 gives weights of 0.
  const auto base = lse.masked_fill(lse == -kInfinity, 0.0);
  const auto weight = [&](const at::Tensor& of) { return (of - base).exp_().unsqueeze(-1); };
  sum.out = tokens_first(
      (sum.out.to(type) * weight(sum.lse)).addcmul_(part.out.to(type), weight(part.lse)));
  sum.lse = lse;
}

}  // namespace trireme::ops
