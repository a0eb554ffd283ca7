#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "ops/attention/memo.hpp"
#include "ops/product.hpp"

namespace trireme::ops {
namespace {

/// One kernel call: all queries see all keys, or query i sees the first i + 1, or `mask` decides.
struct KernelCall {
  KeyInterval keys;
  bool causal;
  std::optional<at::Tensor> mask = std::nullopt;  // [queries, keys], added to the scores
};

/// Returns the query parts of a document. Parts with a moving window are divided, so that each one
/// reads few keys that it does not see.
std::vector<QueryPart> divided_parts(const DocumentPlan& document) {
  constexpr std::int64_t kQueries = 64;
  std::vector<QueryPart> parts;
  for (const QueryPart& part : document.queries) {
    const std::int64_t most = part.begin_moves ? kQueries : part.tokens.length;
    for (std::int64_t query = 0; query < part.tokens.length; query += most)
      parts.push_back(part.slice(query, std::min(most, part.tokens.length - query)));
  }
  return parts;
}

/// Returns one or two calls that together cover the keys of the part.
std::vector<KernelCall> calls_of(const QueryPart& part) {
  const KeyInterval keys = part.keys();
  if (part.sees_no_key()) return {};
  // A single query needs no mask.
  if (part.tokens.length == 1 || (!part.begin_moves && !part.end_moves)) return {{keys, false}};
  if (part.begin_moves) {
    const auto hidden = seen_keys(part).logical_not_();
    return {{keys, false, at::zeros(hidden.sizes()).masked_fill_(hidden, -kInfinity)}};
  }
  std::vector<KernelCall> calls;
  const std::int64_t common = part.first.end - 1;  // before the diagonal
  if (common > keys.begin) calls.push_back({{keys.begin, common}, false});
  calls.push_back({{common, keys.end}, true});
  return calls;
}

at::Tensor rows_of_document(const at::Tensor& x, std::int64_t row) {
  return row < 0 ? x : x.narrow(0, row, 1);
}

at::Tensor keys_of(const at::Tensor& x, const DocumentPlan& document) {
  const auto rows = rows_of_document(x, document.row);
  if (document.keys.size() == 1)
    return rows.narrow(2, document.keys[0].first, document.keys[0].length);
  std::vector<at::Tensor> parts;
  for (const TokenRange& range : document.keys)
    parts.push_back(rows.narrow(2, range.first, range.length));
  return parts.empty() ? rows.narrow(2, 0, 0) : at::cat(parts, 2);
}

at::Tensor part_of(const at::Tensor& x, std::int64_t row, const TokenRange& tokens) {
  return rows_of_document(x, row).narrow(2, tokens.first, tokens.length);
}

/// Returns true if each document is one call, so that results are written instead of summed.
bool one_call_each(const AttentionPlan& plan) {
  return std::ranges::all_of(plan, [](const DocumentPlan& document) {
    const auto parts = divided_parts(document);
    return parts.size() == 1 && calls_of(parts[0]).size() == 1 && document.keys.size() == 1 &&
           parts[0].keys() == KeyInterval{0, document.num_keys};
  });
}

at::Tensor wide(const at::Tensor& x) {
  return x.to(at::kFloat);
}

struct KernelGrads {
  bool written;  // each token has one gradient, otherwise gradients are summed

  void put(const at::Tensor& to, const at::Tensor& grad) const {
    if (written) {
      to.copy_(grad);
    } else {
      to.add_(grad);
    }
  }

  void put_keys(const at::Tensor& to, const DocumentPlan& document, KeyInterval keys,
                const at::Tensor& grad) const {
    std::int64_t key = 0;
    for (const TokenRange& tokens : document.tokens_of(keys)) {
      put(part_of(to, document.row, tokens), grad.narrow(2, key, tokens.length));
      key += tokens.length;
    }
  }
};

}  // namespace

AttentionOutput aten_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionSetup& setup) {
  if (widens_products(q)) {
    const auto [out, lse] = aten_forward(wide(q), wide(k), wide(v), setup);
    return {out.to(result_type(q, setup)), lse};
  }
  const auto keys = repeat_heads(k, q.size(1));
  const auto values = repeat_heads(v, q.size(1));
  const AttentionOutput result = empty_output(q, setup);
  const auto plan = planned_attention(setup, q.size(0), q.size(2), k.size(2));
  for (const DocumentPlan& document : *plan) {
    const auto document_keys = keys_of(keys, document);
    const auto document_values = keys_of(values, document);
    for (const QueryPart& part : divided_parts(document)) {
      const auto queries = part_of(q, document.row, part.tokens);
      AttentionOutput sum;
      for (const KernelCall& call : calls_of(part)) {
        const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
            queries, document_keys.slice(2, call.keys.begin, call.keys.end),
            document_values.slice(2, call.keys.begin, call.keys.end), 0.0, call.causal, call.mask,
            setup.scale);
        if (sum.out.defined()) {
          merge_attention(sum, {out, lse});
        } else {
          sum = {out, lse};
        }
      }
      const auto out = part_of(result.out, document.row, part.tokens);
      const auto lse = part_of(result.lse, document.row, part.tokens);
      if (sum.out.defined()) {
        out.copy_(sum.out);
        lse.copy_(sum.lse);
      } else {
        out.zero_();
        lse.fill_(-kInfinity);
      }
    }
  }
  return result;
}

AttentionGrads aten_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionOutput& forward,
                             const AttentionSetup& setup) {
  const auto result = result_type(q, setup);
  if (widens_products(q)) {
    const auto [of_q, of_k, of_v] = aten_backward(wide(grad_out), wide(q), wide(k), wide(v),
                                                  {wide(forward.out), forward.lse}, setup);
    return {of_q.to(result), of_k.to(result), of_v.to(result)};
  }
  const auto keys = repeat_heads(k, q.size(1));
  const auto values = repeat_heads(v, q.size(1));
  const auto planned = planned_attention(setup, q.size(0), q.size(2), k.size(2));
  const AttentionPlan& plan = *planned;
  const bool written = one_call_each(plan);
  const auto space = [&](const at::Tensor& x) {
    return written ? at::empty(x.sizes(), x.options())
                   : at::zeros(x.sizes(), x.options().dtype(accumulate_type(x)));
  };
  const auto grad_q = space(q);
  const auto grad_k = space(keys);
  const auto grad_v = space(values);
  const KernelGrads grads{written};
  for (const DocumentPlan& document : plan) {
    const auto document_keys = keys_of(keys, document);
    const auto document_values = keys_of(values, document);
    for (const QueryPart& part : divided_parts(document)) {
      const auto of = [&](const at::Tensor& x) { return part_of(x, document.row, part.tokens); };
      for (const KernelCall& call : calls_of(part)) {
        const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
            of(grad_out), of(q), document_keys.slice(2, call.keys.begin, call.keys.end),
            document_values.slice(2, call.keys.begin, call.keys.end), of(forward.out),
            of(forward.lse), 0.0, call.causal, call.mask, setup.scale);
        grads.put(of(grad_q), dq);
        grads.put_keys(grad_k, document, call.keys, dk);
        grads.put_keys(grad_v, document, call.keys, dv);
      }
    }
  }
  return {grad_q.to(result), sum_groups(grad_k, k.size(1), result),
          sum_groups(grad_v, k.size(1), result)};
}

}  // namespace trireme::ops
