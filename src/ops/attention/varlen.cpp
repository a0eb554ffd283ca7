#include "ops/attention/varlen.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "ops/attention/memo.hpp"
#include "ops/upload.hpp"

namespace trireme::ops {
namespace {

/// A run of queries of one document and the keys that they see, in the terms of a VarlenCall.
struct Sequence {
  TokenRange queries;
  KeyInterval keys;
  bool causal;
  std::int64_t window_left;
  bool slides;  // both ends of the keys move by one key per query
};

bool slides(const QueryPart& part) {
  return part.begin_moves && part.end_moves;
}

/// Returns the largest window_left of parts that slide; -1: none slides.
std::int64_t largest_window_left(const AttentionPlan& plan) {
  std::int64_t largest = -1;
  for (const DocumentPlan& document : plan) {
    for (const QueryPart& part : document.queries) {
      if (slides(part) && !part.sees_no_key())
        largest = std::max(largest, part.first.end - part.first.begin - 1);
    }
  }
  return largest;
}

/// `window_left` is the largest of the plan. A causal part with at most as many keys takes it, which
/// excludes no key, so that the part can be in one call with parts that slide.
Sequence sequence_of(const QueryPart& part, std::int64_t window_left) {
  const KeyInterval keys = part.keys();
  Sequence sequence{part.tokens, keys, part.end_moves, -1, slides(part)};
  if (sequence.slides) {
    sequence.window_left = part.first.end - part.first.begin - 1;
  } else if (part.begin_moves) {
    sequence.window_left = keys.end - keys.begin - part.tokens.length;
  } else if (part.end_moves && keys.end - keys.begin <= window_left + 1) {
    sequence.window_left = window_left;
  }
  return sequence;
}

/// Returns true if `next` starts where the windows of `last` begin to slide, so that both are one
/// sequence of a kernel with a window.
bool slides_on(const Sequence& last, const Sequence& next) {
  return next.slides && last.causal && last.window_left == next.window_left &&
         last.queries.first + last.queries.length == next.queries.first &&
         next.keys.end - next.queries.length == last.keys.end;
}

std::vector<Sequence> sequences_of(const DocumentPlan& document, std::int64_t window_left) {
  std::vector<Sequence> sequences;
  for (const QueryPart& part : document.queries) {
    if (part.sees_no_key()) continue;
    const Sequence next = sequence_of(part, window_left);
    if (!sequences.empty() && slides_on(sequences.back(), next)) {
      sequences.back().queries.length += next.queries.length;
      sequences.back().keys.end = next.keys.end;
    } else {
      sequences.push_back(next);
    }
  }
  return sequences;
}

VarlenCall& call_of(const Sequence& sequence, std::vector<VarlenCall>& calls) {
  const auto found = std::ranges::find_if(calls, [&](const VarlenCall& call) {
    return call.causal == sequence.causal && call.window_left == sequence.window_left;
  });
  if (found != calls.end()) return *found;
  return calls.emplace_back(
      VarlenCall{.causal = sequence.causal, .window_left = sequence.window_left});
}

void append_sequence(const DocumentPlan& document, const Sequence& sequence,
                     std::int64_t query_base, std::int64_t key_base, VarlenCall& call) {
  append(call.queries, {query_base + sequence.queries.first, sequence.queries.length});
  const std::int64_t num_keys = sequence.keys.end - sequence.keys.begin;
  for (const TokenRange& range : document.tokens_of(sequence.keys))
    append(call.keys, {key_base + range.first, range.length});
  const auto add = [](std::vector<std::int32_t>& offsets, std::int64_t length) {
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
  };
  add(call.query_offsets, sequence.queries.length);
  add(call.key_offsets, num_keys);
  call.longest_queries = std::max(call.longest_queries, sequence.queries.length);
  call.longest_keys = std::max(call.longest_keys, num_keys);
}

/// Returns the ranges as an index on `device`; undefined if they are all tokens in order.
at::Tensor index_of(const std::vector<TokenRange>& ranges, std::int64_t total, at::Device device) {
  if (ranges.size() == 1 && ranges[0] == TokenRange{0, total}) return {};
  std::vector<at::Tensor> parts;
  parts.reserve(ranges.size());
  for (const TokenRange& range : ranges)
    parts.push_back(at::arange(range.first, range.first + range.length, at::kLong));
  return upload(at::cat(parts), device);
}

/// Selects the tokens of a call: a gather and its inverse, or neither if all tokens are in order.
class Selection {
 public:
  explicit Selection(at::Tensor index) : index_(std::move(index)) {}

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
  explicit Selected(const VarlenCall& call) : queries(call.query_tokens), keys(call.key_tokens) {}

  Selection queries;
  Selection keys;
};

std::optional<std::int64_t> window_of(const VarlenCall& call) {
  return call.window_left < 0 ? std::nullopt : std::optional(call.window_left);
}

AttentionOutput flash_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const VarlenCall& call, double scale) {
  const auto results = at::_flash_attention_forward(
      q, k, v, call.query_starts, call.key_starts, call.longest_queries, call.longest_keys,
      /*dropout_p=*/0.0, call.causal, /*return_debug_mask=*/false, scale, window_of(call));
  return {std::get<0>(results), std::get<1>(results)};
}

AttentionGrads flash_gradients(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOutput& forward,
                               const VarlenCall& call, double scale) {
  // The random state is only read with dropout.
  const auto state = at::empty({2}, q.options().dtype(at::kUInt64));
  const auto unused = at::empty({}, q.options().dtype(at::kUInt64));
  const auto [grad_q, grad_k, grad_v] = at::_flash_attention_backward(
      grad_out.contiguous(), q, k, v, forward.out, forward.lse, call.query_starts, call.key_starts,
      call.longest_queries, call.longest_keys, /*dropout_p=*/0.0, call.causal, state, unused, scale,
      window_of(call));
  return {grad_q, grad_k, grad_v};
}

const VarlenKernel& flash_kernel() {
  static const VarlenKernel kernel{flash_call, flash_gradients};
  return kernel;
}

}  // namespace

std::vector<VarlenCall> varlen_calls(const AttentionPlan& plan, std::int64_t batch,
                                     std::int64_t num_queries, std::int64_t num_keys) {
  const std::int64_t window_left = largest_window_left(plan);
  std::vector<VarlenCall> calls;
  for (std::int64_t row = 0; row < batch; ++row) {
    for (const DocumentPlan& document : plan) {
      if (document.row >= 0 && document.row != row) continue;
      for (const Sequence& sequence : sequences_of(document, window_left))
        append_sequence(document, sequence, row * num_queries, row * num_keys,
                        call_of(sequence, calls));
    }
  }
  std::ranges::stable_sort(calls, std::greater<>(), &VarlenCall::causal);
  return calls;
}

void copy_to_device(VarlenCall& call, std::int64_t total_queries, std::int64_t total_keys,
                    at::Device device) {
  call.query_starts = upload(at::tensor(call.query_offsets, at::kInt), device);
  call.key_starts = upload(at::tensor(call.key_offsets, at::kInt), device);
  call.query_tokens = index_of(call.queries, total_queries, device);
  call.key_tokens = index_of(call.keys, total_keys, device);
}

AttentionOutput varlen_forward(const VarlenKernel& kernel, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionSetup& setup) {
  const auto batch = q.size(0);
  const auto type = result_type(q, setup);
  const auto queries = as_tokens(q);
  const auto keys = as_tokens(k);
  const auto values = as_tokens(v);
  const auto run = [&](const VarlenCall& call, const Selected& selected) {
    return kernel.forward(selected.queries.take(queries), selected.keys.take(keys),
                          selected.keys.take(values), call, setup.scale);
  };
  const auto result = [&](const at::Tensor& out, const at::Tensor& lse) {  // lse [H, B Tq]
    return AttentionOutput{as_heads(out, batch),
                           lse.unflatten(1, {batch, -1}).transpose(0, 1).contiguous()};
  };
  const auto planned = placed_calls(setup, batch, q.size(2), k.size(2), q.device());
  const std::vector<VarlenCall>& calls = *planned;
  if (calls.size() == 1) {
    const Selected selected(calls[0]);
    if (selected.queries.is_all()) {
      const auto whole = run(calls[0], selected);
      return result(whole.out.to(type), whole.lse);
    }
  }
  const auto out = at::zeros(queries.sizes(), q.options().dtype(type));
  const auto lse = at::full({queries.size(0), q.size(1)}, -std::numeric_limits<float>::infinity(),
                            q.options().dtype(accumulate_type(q)));
  for (const VarlenCall& call : calls) {
    const Selected selected(call);
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
  const auto planned = placed_calls(setup, batch, q.size(2), k.size(2), q.device());
  const std::vector<VarlenCall>& calls = *planned;
  if (calls.size() == 1) {
    const Selected selected(calls[0]);
    if (selected.queries.is_all() && selected.keys.is_all()) return result(run(calls[0], selected));
  }
  const auto zeros = [&](const at::Tensor& x) {
    return at::zeros(x.sizes(), x.options().dtype(accumulate_type(x)));
  };
  const AttentionGrads sums{zeros(queries), zeros(keys), zeros(values)};
  for (const VarlenCall& call : calls) {
    const Selected selected(call);
    const auto part = run(call, selected);
    selected.queries.put(sums.q, part.q);
    selected.keys.add(sums.k, part.k);
    selected.keys.add(sums.v, part.v);
  }
  return result(sums);
}

bool flash_applies(const at::Tensor& q, const AttentionSetup& /*setup*/) {
  constexpr int kAmpere = 8;
  return q.size(3) % 8 == 0 && q.size(3) <= 256 && cuda_generation(q.device()) >= kAmpere;
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
