#include "ops/attention/varlen.hpp"

#include <ATen/ATen.h>

#include <limits>

#include "core/error.hpp"

namespace trireme::ops {
namespace {

void append_sequence(const DocumentPlan& document, const QueryPart& part, std::int64_t query_base,
                     std::int64_t key_base, VarlenCall& call) {
  append(call.queries, {query_base + part.tokens.first, part.tokens.length});
  const KeyInterval keys = part.keys();
  const std::int64_t num_keys = keys.end - keys.begin;
  for (const TokenRange& range : document.tokens_of(keys))
    append(call.keys, {key_base + range.first, range.length});
  const auto add = [](std::vector<std::int32_t>& offsets, std::int64_t length) {
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
  };
  add(call.query_offsets, part.tokens.length);
  add(call.key_offsets, num_keys);
  call.longest_queries = std::max(call.longest_queries, part.tokens.length);
  call.longest_keys = std::max(call.longest_keys, num_keys);
}

/// Appends the document's query parts that match call.causal.
void append_document(const DocumentPlan& document, std::int64_t query_base, std::int64_t key_base,
                     VarlenCall& call) {
  for (const QueryPart& part : document.queries) {
    TRIREME_ASSERT(!part.begin_moves);
    if (part.end_moves == call.causal && !part.sees_no_key())
      append_sequence(document, part, query_base, key_base, call);
  }
}

/// Selects the tokens of a call: a gather and its inverse, or neither if all tokens are in order.
class Selection {
 public:
  Selection(const std::vector<TokenRange>& ranges, std::int64_t total, at::Device device) {
    if (ranges.size() == 1 && ranges[0] == TokenRange{0, total}) return;
    std::vector<at::Tensor> parts;
    parts.reserve(ranges.size());
    for (const TokenRange& range : ranges)
      parts.push_back(at::arange(range.first, range.first + range.length, at::kLong));
    index_ = at::cat(parts);
    // From pinned memory the copy is asynchronous, so the host does not wait.
    if (device.is_cuda()) index_ = index_.pin_memory().to(device, /*non_blocking=*/true);
  }

  [[nodiscard]] bool is_all() const { return !index_.defined(); }

  [[nodiscard]] at::Tensor take(const at::Tensor& x) const {  // [tokens, ...]
    return index_.defined() ? x.index_select(0, index_) : x;
  }

  void put(const at::Tensor& to, const at::Tensor& from) const {
    if (index_.defined()) {
      to.index_copy_(0, index_, from.to(to.scalar_type()));
    } else {
      to.copy_(from);
    }
  }

  /// Adds tokens that may occur several times. index_put_ sorts them, so the sum is deterministic.
  void add(const at::Tensor& to, const at::Tensor& from) const {
    if (index_.defined()) {
      to.index_put_(c10::List<std::optional<at::Tensor>>({index_}), from.to(to.scalar_type()),
                    /*accumulate=*/true);
    } else {
      to.add_(from);
    }
  }

 private:
  at::Tensor index_;
};

/// [B, heads, T, D] -> [B T, heads, D].
at::Tensor as_tokens(const at::Tensor& x) {
  const auto last = x.transpose(1, 2).flatten(0, 1);
  return last.stride(-1) == 1 ? last : last.contiguous();
}

/// [B T, heads, D] -> [B, heads, T, D].
at::Tensor as_heads(const at::Tensor& x, std::int64_t batch) {
  return x.unflatten(0, {batch, -1}).transpose(1, 2);
}

struct Selected {
  Selected(const VarlenCall& call, const at::Tensor& query_tokens, const at::Tensor& key_tokens)
      : queries(call.queries, query_tokens.size(0), query_tokens.device()),
        keys(call.keys, key_tokens.size(0), key_tokens.device()) {}

  Selection queries;
  Selection keys;
};

at::Tensor on_device(const std::vector<std::int32_t>& offsets, at::Device device) {
  const auto host = at::tensor(offsets, at::kInt);
  return device.is_cuda() ? host.pin_memory().to(device, /*non_blocking=*/true) : host;
}

AttentionOutput flash_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const VarlenCall& call, double scale) {
  const auto results = at::_flash_attention_forward(
      q, k, v, on_device(call.query_offsets, q.device()), on_device(call.key_offsets, q.device()),
      call.longest_queries, call.longest_keys, /*dropout_p=*/0.0, call.causal,
      /*return_debug_mask=*/false, scale);
  return {std::get<0>(results), std::get<1>(results)};
}

AttentionGrads flash_gradients(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOutput& forward,
                               const VarlenCall& call, double scale) {
  // The random state is only read with dropout.
  const auto state = at::empty({2}, q.options().dtype(at::kUInt64));
  const auto unused = at::empty({}, q.options().dtype(at::kUInt64));
  const auto [grad_q, grad_k, grad_v] = at::_flash_attention_backward(
      grad_out.contiguous(), q, k, v, forward.out, forward.lse,
      on_device(call.query_offsets, q.device()), on_device(call.key_offsets, q.device()),
      call.longest_queries, call.longest_keys, /*dropout_p=*/0.0, call.causal, state, unused,
      scale);
  return {grad_q, grad_k, grad_v};
}

const VarlenKernel& flash_kernel() {
  static const VarlenKernel kernel{flash_call, flash_gradients};
  return kernel;
}

}  // namespace

std::vector<VarlenCall> varlen_calls(const AttentionPlan& plan, std::int64_t batch,
                                     std::int64_t num_queries, std::int64_t num_keys) {
  std::vector<VarlenCall> calls;
  for (const bool causal : {true, false}) {
    VarlenCall call{causal, {0}, {0}, 0, 0, {}, {}};
    for (std::int64_t row = 0; row < batch; ++row) {
      for (const DocumentPlan& document : plan) {
        if (document.row < 0 || document.row == row)
          append_document(document, row * num_queries, row * num_keys, call);
      }
    }
    if (call.query_offsets.size() > 1) calls.push_back(std::move(call));
  }
  return calls;
}

AttentionOutput varlen_forward(const VarlenKernel& kernel, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionSetup& setup) {
  const auto batch = q.size(0);
  const auto type = result_type(q, setup);
  const auto queries = as_tokens(q);
  const auto keys = as_tokens(k);
  const auto values = as_tokens(v);
  const AttentionPlan plan = plan_attention(setup, batch, q.size(2), k.size(2));
  const auto run = [&](const VarlenCall& call, const Selected& selected) {
    return kernel.forward(selected.queries.take(queries), selected.keys.take(keys),
                          selected.keys.take(values), call, setup.scale);
  };
  const auto result = [&](const at::Tensor& out, const at::Tensor& lse) {  // lse [H, B Tq]
    return AttentionOutput{as_heads(out, batch),
                           lse.unflatten(1, {batch, -1}).transpose(0, 1).contiguous()};
  };
  const auto calls = varlen_calls(plan, batch, q.size(2), k.size(2));
  if (calls.size() == 1) {
    const Selected selected(calls[0], queries, keys);
    if (selected.queries.is_all()) {
      const auto whole = run(calls[0], selected);
      return result(whole.out.to(type), whole.lse);
    }
  }
  const auto out = at::zeros(queries.sizes(), q.options().dtype(type));
  const auto lse = at::full({queries.size(0), q.size(1)}, -std::numeric_limits<float>::infinity(),
                            q.options().dtype(accumulate_type(q)));
  for (const VarlenCall& call : calls) {
    const Selected selected(call, queries, keys);
    const auto part = run(call, selected);
    selected.queries.put(out, part.out);
    selected.queries.put(lse, part.lse.t());
  }
  return result(out, lse.t());
}

AttentionGrads varlen_backward(const VarlenKernel& kernel, const at::Tensor& grad_out,
                               const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionOutput& forward, const AttentionSetup& setup) {
  const auto batch = q.size(0);
  const auto type = result_type(q, setup);
  const auto queries = as_tokens(q);
  const auto keys = as_tokens(k);
  const auto values = as_tokens(v);
  const auto incoming = as_tokens(grad_out);
  const auto out = as_tokens(forward.out);
  const auto lse = forward.lse.transpose(1, 2).flatten(0, 1);  // [B Tq, H]
  const AttentionPlan plan = plan_attention(setup, batch, q.size(2), k.size(2));
  const auto run = [&](const VarlenCall& call, const Selected& selected) {
    return kernel.backward(
        selected.queries.take(incoming), selected.queries.take(queries), selected.keys.take(keys),
        selected.keys.take(values),
        {selected.queries.take(out), selected.queries.take(lse).t().contiguous()}, call,
        setup.scale);
  };
  const auto result = [&](const AttentionGrads& grads) {
    return AttentionGrads{as_heads(grads.q.to(type), batch), as_heads(grads.k.to(type), batch),
                          as_heads(grads.v.to(type), batch)};
  };
  const auto calls = varlen_calls(plan, batch, q.size(2), k.size(2));
  if (calls.size() == 1) {
    const Selected selected(calls[0], queries, keys);
    if (selected.queries.is_all() && selected.keys.is_all()) return result(run(calls[0], selected));
  }
  const auto zeros = [&](const at::Tensor& x) {
    return at::zeros(x.sizes(), x.options().dtype(accumulate_type(x)));
  };
  const AttentionGrads sums{zeros(queries), zeros(keys), zeros(values)};
  for (const VarlenCall& call : calls) {
    const Selected selected(call, queries, keys);
    const auto part = run(call, selected);
    selected.queries.put(sums.q, part.q);
    selected.keys.add(sums.k, part.k);
    selected.keys.add(sums.v, part.v);
  }
  return result(sums);
}

bool flash_applies(const at::Tensor& q, const AttentionSetup& setup) {
  constexpr int kAmpere = 8;
  return setup.window == 0 && q.size(3) % 8 == 0 && q.size(3) <= 256 &&
         cuda_generation(q.device()) >= kAmpere;
}

AttentionOutput flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup) {
  return varlen_forward(flash_kernel(), q, k, v, setup);
}

AttentionGrads flash_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const AttentionOutput& forward,
                              const AttentionSetup& setup) {
  return varlen_backward(flash_kernel(), grad_out, q, k, v, forward, setup);
}

}  // namespace trireme::ops
