#include "ops/attention.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <limits>

#include "core/error.hpp"
#include "ops/attention_tiles.hpp"

namespace trireme::ops {
namespace {

void check_bounds(const RowBounds& bounds, std::int64_t batch, std::int64_t length) {
  if (bounds.empty()) return;
  if (static_cast<std::int64_t>(bounds.size()) != batch) {
    fail(ErrorKind::internal, "attention: {} rows of bounds, batch {}", bounds.size(), batch);
  }
  for (std::size_t row = 0; row < bounds.size(); ++row) {
    const auto& edges = bounds[row];
    bool rising = edges.size() >= 2 && edges.front() == 0 && edges.back() == length;
    for (std::size_t i = 1; rising && i < edges.size(); ++i) rising = edges[i - 1] < edges[i];
    if (!rising) {
      fail(ErrorKind::internal, "attention: bounds of row {} must rise from 0 to {}", row, length);
    }
  }
}

void check_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionSetup& setup) {
  const auto fit = q.dim() == 4 && k.dim() == 4 && k.sizes() == v.sizes() &&
                   q.size(0) == k.size(0) && q.size(2) == k.size(2) && q.size(3) == k.size(3) &&
                   k.size(1) > 0 && q.size(1) % k.size(1) == 0 &&
                   q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type();
  if (!fit) {
    fail(
        ErrorKind::internal,
        "attention: q {}, k {}, v {}: must be [B, H, T, D] and twice [B, Hk, T, D], Hk a divisor of H, of one dtype",
        q.sizes(), k.sizes(), v.sizes());
  }
  check_bounds(setup.bounds, q.size(0), q.size(2));
}

bool masked(const AttentionSetup& setup) {
  return setup.causal || !setup.bounds.empty();
}

/// Every key head once per query head of its group.
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t num_heads) {
  return x.repeat_interleave(num_heads / x.size(1), 1);
}

at::Tensor plain_scores(const at::Tensor& q, const at::Tensor& k, const AttentionSetup& setup) {
  auto scores = at::matmul(q, k.transpose(-2, -1)).mul_(setup.scale);  // [B, H, T, T]
  if (masked(setup)) {
    const auto mask = attention_mask(setup, q.size(0), q.size(2), q.device());
    scores.masked_fill_(mask.logical_not().unsqueeze(1), -std::numeric_limits<double>::infinity());
  }
  return scores;
}

AttentionOutput plain_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup) {
  const auto type = accumulate_type(q);
  const auto keys = repeat_heads(k.to(type), q.size(1));
  const auto values = repeat_heads(v.to(type), q.size(1));
  const auto scores = plain_scores(q.to(type), keys, setup);
  const auto out = at::matmul(at::softmax(scores, -1), values).to(q.scalar_type());
  return {out.transpose(1, 2).contiguous().transpose(1, 2), at::logsumexp(scores, {-1})};
}

AttentionGrads plain_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const AttentionOutput& forward,
                              const AttentionSetup& setup) {
  const auto type = accumulate_type(q);
  const auto queries = q.to(type);
  const auto keys = repeat_heads(k.to(type), q.size(1));
  const auto values = repeat_heads(v.to(type), q.size(1));
  const auto incoming = grad_out.to(type);
  const auto weights = (plain_scores(queries, keys, setup) - forward.lse.unsqueeze(-1)).exp_();
  const auto along = (incoming * forward.out.to(type)).sum(-1, /*keepdim=*/true);  // [B, H, T, 1]
  const auto grad_weights = at::matmul(incoming, values.transpose(-2, -1));
  const auto grad_scores = (grad_weights - along).mul_(weights).mul_(setup.scale);
  const auto sum_groups = [&](const at::Tensor& grad) {
    const auto groups = q.size(1) / k.size(1);
    return grad.unflatten(1, {k.size(1), groups}).sum(2).to(q.scalar_type());
  };
  return {at::matmul(grad_scores, keys).to(q.scalar_type()),
          sum_groups(at::matmul(grad_scores.transpose(-2, -1), queries)),
          sum_groups(at::matmul(weights.transpose(-2, -1), incoming))};
}

/// Calls body(row, first token, length) for every document; rows together (row
/// -1) when each is one document.
template <class Body>
void for_documents(const AttentionSetup& setup, std::int64_t length, const Body& body) {
  if (setup.bounds.empty()) {
    body(-1, 0, length);
    return;
  }
  for (std::size_t row = 0; row < setup.bounds.size(); ++row) {
    const auto& edges = setup.bounds[row];
    for (std::size_t i = 1; i < edges.size(); ++i) {
      body(static_cast<std::int64_t>(row), edges[i - 1], edges[i] - edges[i - 1]);
    }
  }
}

at::Tensor document_of(const at::Tensor& x, std::int64_t row, std::int64_t first,
                       std::int64_t length) {
  return (row < 0 ? x : x.narrow(0, row, 1)).narrow(2, first, length);
}

/// ATen's CPU kernel, one call a document.
AttentionOutput aten_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionSetup& setup) {
  const auto keys = repeat_heads(k, q.size(1));
  const auto values = repeat_heads(v, q.size(1));
  AttentionOutput result{
      at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options()).transpose(1, 2),
      at::empty({q.size(0), q.size(1), q.size(2)}, at::kFloat)};
  for_documents(setup, q.size(2), [&](std::int64_t row, std::int64_t first, std::int64_t length) {
    const auto part = [&](const at::Tensor& x) { return document_of(x, row, first, length); };
    const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        part(q), part(keys), part(values), 0.0, setup.causal, {}, setup.scale);
    part(result.out).copy_(out);
    part(result.lse).copy_(lse);
  });
  return result;
}

AttentionGrads aten_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionOutput& forward,
                             const AttentionSetup& setup) {
  const auto keys = repeat_heads(k, q.size(1));
  const auto values = repeat_heads(v, q.size(1));
  const auto grad_q = at::empty(q.sizes(), q.options());
  const auto grad_k = at::empty(q.sizes(), q.options());
  const auto grad_v = at::empty(q.sizes(), q.options());
  for_documents(setup, q.size(2), [&](std::int64_t row, std::int64_t first, std::int64_t length) {
    const auto part = [&](const at::Tensor& x) { return document_of(x, row, first, length); };
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        part(grad_out), part(q), part(keys), part(values), part(forward.out), part(forward.lse),
        0.0, setup.causal, {}, setup.scale);
    part(grad_q).copy_(dq);
    part(grad_k).copy_(dk);
    part(grad_v).copy_(dv);
  });
  const auto sum_groups = [&](const at::Tensor& grad) {
    return grad.unflatten(1, {k.size(1), q.size(1) / k.size(1)}).sum(2);
  };
  return {grad_q, sum_groups(grad_k), sum_groups(grad_v)};
}

/// Attention of one device and dtype, where its shapes fit.
struct AttentionRow {
  at::DeviceType device;
  at::ScalarType dtype;
  bool (*fits)(const at::Tensor& q);
  AttentionOutput (*forward)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionSetup& setup);
  AttentionGrads (*backward)(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionOutput& forward,
                             const AttentionSetup& setup);
};

bool any_shape(const at::Tensor& /*q*/) {
  return true;
}

/// The first that fits is taken; none: the plain path.
constexpr std::array<AttentionRow, 3> kAttention{{
    {at::kCPU, at::kBFloat16, tiles_apply, tiles_forward, tiles_backward},
    {at::kCPU, at::kBFloat16, any_shape, aten_forward, aten_backward},
    {at::kCPU, at::kFloat, any_shape, aten_forward, aten_backward},
}};

constexpr AttentionRow kPlain{at::kCPU, at::kDouble, any_shape, plain_forward, plain_backward};

const AttentionRow& find_attention(Path path, const at::Tensor& q) {
  if (path == Path::plain) return kPlain;
  const auto* const found =
      std::find_if(kAttention.begin(), kAttention.end(), [&](const AttentionRow& row) {
        return row.device == q.device().type() && row.dtype == q.scalar_type() && row.fits(q);
      });
  return found == kAttention.end() ? kPlain : *found;
}

/// Where ATen's own attention, gradients too, is the fast path.
bool has_library_attention(at::Device device) {
  return device.is_cuda();
}

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionSetup& setup, bool fast) {
    auto [out, lse] = attention_forward(q, k, v, setup, fast ? Path::fast : Path::plain);
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["scale"] = setup.scale;
    ctx->saved_data["causal"] = setup.causal;
    ctx->saved_data["bounds"] = setup.bounds;
    ctx->saved_data["fast"] = fast;
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto path = ctx->saved_data["fast"].toBool() ? Path::fast : Path::plain;
    const AttentionSetup setup{ctx->saved_data["scale"].toDouble(),
                               ctx->saved_data["causal"].toBool(),
                               ctx->saved_data["bounds"].to<RowBounds>()};
    auto out = attention_backward(grads[0], saved[0], saved[1], saved[2], {saved[3], saved[4]},
                                  setup, path);
    return {out.q, out.k, out.v, {}, {}};
  }
};

}  // namespace

at::Tensor attention_mask(const AttentionSetup& setup, std::int64_t batch, std::int64_t length,
                          at::Device device) {
  check_bounds(setup.bounds, batch, length);
  auto mask = at::ones({length, length}, at::kBool);
  if (setup.causal) mask = mask.tril();
  mask = mask.unsqueeze(0).expand({batch, length, length});
  if (setup.bounds.empty()) return mask.to(device);
  auto documents = at::zeros({batch, length}, at::kLong);
  for (std::int64_t row = 0; row < batch; ++row) {
    const auto& edges = setup.bounds[static_cast<std::size_t>(row)];
    for (std::size_t i = 1; i < edges.size(); ++i) {
      documents[row]
          .narrow(0, edges[i - 1], edges[i] - edges[i - 1])
          .fill_(static_cast<std::int64_t>(i));
    }
  }
  const auto same = documents.unsqueeze(2) == documents.unsqueeze(1);  // [B, T, T]
  return mask.logical_and(same).to(device);
}

AttentionOutput attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionSetup& setup, Path path) {
  check_shapes(q, k, v, setup);
  const at::NoGradGuard no_grad;
  return find_attention(path, q).forward(q, k, v, setup);
}

AttentionGrads attention_backward(const at::Tensor& grad_out, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOutput& forward, const AttentionSetup& setup,
                                  Path path) {
  check_shapes(q, k, v, setup);
  const at::NoGradGuard no_grad;
  return find_attention(path, q).backward(grad_out, q, k, v, forward, setup);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionSetup& setup, Path path) {
  if (path == Path::fast && has_library_attention(q.device()))
    return library_attention(q, k, v, setup);
  return AttentionFunction::apply(q, k, v, setup, path == Path::fast);
}

at::Tensor library_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionSetup& setup) {
  check_shapes(q, k, v, setup);
  const bool one_document_a_row = std::all_of(setup.bounds.begin(), setup.bounds.end(),
                                              [](const auto& edges) { return edges.size() == 2; });
  if (one_document_a_row) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, setup.causal, setup.scale,
                                            /*enable_gqa=*/true);
  }
  const auto mask = attention_mask(setup, q.size(0), q.size(2), q.device()).unsqueeze(1);
  return at::scaled_dot_product_attention(q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)),
                                          mask, 0.0, false, setup.scale);
}

}  // namespace trireme::ops
