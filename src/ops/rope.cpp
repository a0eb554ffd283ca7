#include "ops/rope.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "ops/fast.hpp"

namespace trireme::ops {
namespace {

void check_heads(const at::Tensor& x, const at::Tensor& weight, const QkNormRope& setup) {
  const auto dims_fit = x.dim() == 4 && x.size(-1) % 2 == 0 &&
                        setup.tables.cos.sizes() == setup.tables.sin.sizes() &&
                        setup.tables.cos.size(-1) * 2 == x.size(-1);
  const auto positions_fit = x.dim() == 4 && setup.positions.scalar_type() == at::kLong &&
                             setup.positions.dim() == 2 && setup.positions.size(0) == x.size(0) &&
                             setup.positions.size(1) == x.size(1);
  const auto weight_fits =
      !weight.defined() || (weight.dim() == 1 && weight.size(0) == x.size(-1) &&
                            weight.scalar_type() == x.scalar_type());
  if (!dims_fit || !positions_fit || !weight_fits) {
    fail(
        ErrorKind::internal,
        "qk_norm_rope: x {}, positions {}, tables {}: must be [B, T, H, D], [B, T] int64, [positions, D/2], and weights [D] of x's dtype",
        x.sizes(), setup.positions.sizes(), setup.tables.cos.sizes());
  }
}

void check_positions(const QkNormRope& setup) {
  // A look at another device's memory would wait for all of its work.
  if (setup.positions.device() != at::kCPU || setup.positions.numel() == 0) return;
  const auto low = setup.positions.min().item<std::int64_t>();
  const auto high = setup.positions.max().item<std::int64_t>();
  if (low < 0 || high >= setup.tables.cos.size(0)) {
    fail(ErrorKind::data,
         "positions {} to {}, must be in [0, {}): model.max_seq_len is too small for this batch",
         low, high, setup.tables.cos.size(0));
  }
}

/// cos and sin of every token: [B, T, 1, D/2].
RopeTables gather_angles(const QkNormRope& setup, at::ScalarType type) {
  const auto pick = [&](const at::Tensor& table) {
    const auto rows = table.index_select(0, setup.positions.reshape({-1})).to(type);
    return rows.view({setup.positions.size(0), setup.positions.size(1), 1, table.size(1)});
  };
  return {pick(setup.tables.cos), pick(setup.tables.sin)};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

at::Tensor inverse_rms(const at::Tensor& wide, double eps) {
  return wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
}

at::Tensor plain_forward(const at::Tensor& x, const at::Tensor& weight, const QkNormRope& setup) {
  auto wide = x.to(accumulate_type(x));
  if (weight.defined()) wide = wide * inverse_rms(wide, setup.eps) * weight.to(wide.scalar_type());
  const auto [cos, sin] = gather_angles(setup, wide.scalar_type());
  return rotate(wide, cos, sin).to(x.scalar_type()).transpose(1, 2).contiguous();
}

struct HeadGrads {
  at::Tensor x;
  at::Tensor weight;
};

HeadGrads plain_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                         const QkNormRope& setup) {
  const auto type = accumulate_type(x);
  const auto [cos, sin] = gather_angles(setup, type);
  const auto turned_back = rotate(grad.to(type).transpose(1, 2), cos, -sin);  // [B, T, H, D]
  if (!weight.defined()) return {turned_back.to(x.scalar_type()), {}};
  const auto wide = x.to(type);
  const auto rstd = inverse_rms(wide, setup.eps);
  const auto normed = wide * rstd;
  const auto weighted = turned_back * weight.to(type);
  const auto along = (weighted * normed).mean(-1, /*keepdim=*/true);
  return {((weighted - normed * along) * rstd).to(x.scalar_type()),
          (turned_back * normed).sum(at::IntArrayRef{0, 1, 2})};
}

/// Tables and positions as the kernels read them, made once for q and k.
struct Angles {
  at::Tensor cos;
  at::Tensor sin;
  at::Tensor positions;
};

Angles kernel_angles(const QkNormRope& setup) {
  return {setup.tables.cos.to(at::kFloat).contiguous(),
          setup.tables.sin.to(at::kFloat).contiguous(), setup.positions.contiguous()};
}

using HeadsKernel = void (*)(const kernels::Heads& call);

/// Null: the plain path.
HeadsKernel heads_kernel(Path path, const at::Tensor& x, HeadsKernel kernels::Table::*kernel) {
  return x.size(3) <= kernels::kMaxHeadWidth ? find_kernel(path, x, kernel) : nullptr;
}

at::Tensor last_dim_contiguous(const at::Tensor& x) {
  return x.stride(3) == 1 || x.size(3) <= 1 ? x : x.contiguous();
}

kernels::HeadStrides strides_bthd(const at::Tensor& x) {
  return {x.stride(0), x.stride(1), x.stride(2)};
}

kernels::HeadStrides strides_bhtd(const at::Tensor& x) {
  return {x.stride(0), x.stride(2), x.stride(1)};
}

kernels::Heads kernel_call(const at::Tensor& x, const at::Tensor& weight, const Angles& angles,
                           double eps) {
  kernels::Heads call{};
  call.element = element_of(x);
  call.x = x.data_ptr();
  call.x_strides = strides_bthd(x);
  call.weight = weight.defined() ? weight.data_ptr() : nullptr;
  call.cos = angles.cos.data_ptr<float>();
  call.sin = angles.sin.data_ptr<float>();
  call.positions = angles.positions.data_ptr<std::int64_t>();
  call.length = x.size(1);
  call.num_heads = x.size(2);
  call.width = x.size(3);
  call.eps = static_cast<float>(eps);
  return call;
}

at::Tensor fast_forward(HeadsKernel kernel, const at::Tensor& x_in, const at::Tensor& weight,
                        const Angles& angles, double eps) {
  const auto x = last_dim_contiguous(x_in);
  auto out = at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options());
  auto call = kernel_call(x, weight, angles, eps);
  call.out = out.data_ptr();
  call.out_strides = strides_bhtd(out);
  for_rows(x.size(0) * x.size(1), [&](std::int64_t first, std::int64_t last) {
    auto part = call;
    part.first_token = first;
    part.last_token = last;
    kernel(part);
  });
  return out;
}

/// Writes the gradient of x into `grad_x` [B, T, H, D]; returns the weight's,
/// undefined without norm.
at::Tensor fast_backward(HeadsKernel kernel, const at::Tensor& grad_in, const at::Tensor& x_in,
                         const at::Tensor& weight, const Angles& angles, double eps,
                         const at::Tensor& grad_x) {
  const auto x = last_dim_contiguous(x_in);
  const auto grad = last_dim_contiguous(grad_in);
  auto call = kernel_call(x, weight, angles, eps);
  call.grad = grad.data_ptr();
  call.grad_strides = strides_bhtd(grad);
  call.out = grad_x.data_ptr();
  call.out_strides = strides_bthd(grad_x);
  const auto tokens = x.size(0) * x.size(1);
  const ChunkSums sums(tokens, x.size(3), x.device());
  for_row_chunks(tokens, [&](std::int64_t first, std::int64_t last) {
    auto part = call;
    part.grad_weight = sums.of_row(first);
    part.first_token = first;
    part.last_token = last;
    kernel(part);
  });
  return weight.defined() ? sums.total() : at::Tensor();
}

QueryKeyValue split_qkv(const at::Tensor& qkv, std::int64_t num_heads, std::int64_t num_kv_heads) {
  const auto num_slots = num_heads + 2 * num_kv_heads;
  if (qkv.dim() != 3 || num_heads < 1 || num_kv_heads < 1 || qkv.size(2) % num_slots != 0) {
    fail(ErrorKind::internal, "qkv_norm_rope: qkv {} must be [B, T, ({} + 2 * {}) * head_dim]",
         qkv.sizes(), num_heads, num_kv_heads);
  }
  const auto slots = qkv.unflatten(2, {num_slots, qkv.size(2) / num_slots});
  return {slots.narrow(2, 0, num_heads), slots.narrow(2, num_heads, num_kv_heads),
          slots.narrow(2, num_heads + num_kv_heads, num_kv_heads)};
}

}  // namespace

RopeTables rope_tables(std::int64_t max_positions, std::int64_t head_dim, double theta,
                       at::ScalarType dtype, at::Device device) {
  if (head_dim < 2 || head_dim % 2 != 0) {
    fail(ErrorKind::usage, "model.head_dim = {}, must be even and positive", head_dim);
  }
  const at::NoGradGuard no_grad;
  const auto indices = at::arange(head_dim / 2, at::kDouble);
  const auto frequencies = at::pow(theta, indices * (-2.0 / static_cast<double>(head_dim)));
  const auto angles = at::outer(at::arange(max_positions, at::kDouble), frequencies);
  return {angles.cos().to(device, dtype), angles.sin().to(device, dtype)};
}

RopeTables rope_tables(std::int64_t max_positions, std::span<const double> frequencies,
                       double scale, at::ScalarType dtype, at::Device device) {
  const at::NoGradGuard no_grad;
  const auto turns = at::tensor(at::ArrayRef<double>(frequencies.data(), frequencies.size()),
                                at::kDouble);  // [D/2]
  const auto angles = at::outer(at::arange(max_positions, at::kDouble), turns);
  return {(angles.cos() * scale).to(device, dtype), (angles.sin() * scale).to(device, dtype)};
}

QueryKey qk_norm_rope_forward(const at::Tensor& q, const at::Tensor& k, const QkNormRope& setup,
                              Path path) {
  check_heads(q, setup.q_weight, setup);
  check_heads(k, setup.k_weight, setup);
  check_positions(setup);
  const at::NoGradGuard no_grad;
  if (const auto kernel = heads_kernel(path, q, &kernels::Table::heads_forward)) {
    const auto angles = kernel_angles(setup);
    return {fast_forward(kernel, q, setup.q_weight, angles, setup.eps),
            fast_forward(kernel, k, setup.k_weight, angles, setup.eps)};
  }
  return {plain_forward(q, setup.q_weight, setup), plain_forward(k, setup.k_weight, setup)};
}

QkNormRopeGrads qk_norm_rope_backward(const at::Tensor& grad_q, const at::Tensor& grad_k,
                                      const at::Tensor& q, const at::Tensor& k,
                                      const QkNormRope& setup, Path path) {
  check_heads(q, setup.q_weight, setup);
  check_heads(k, setup.k_weight, setup);
  const at::NoGradGuard no_grad;
  if (const auto kernel = heads_kernel(path, q, &kernels::Table::heads_backward)) {
    const auto angles = kernel_angles(setup);
    QkNormRopeGrads grads{
        at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()), {}, {}};
    grads.q_weight = fast_backward(kernel, grad_q, q, setup.q_weight, angles, setup.eps, grads.q);
    grads.k_weight = fast_backward(kernel, grad_k, k, setup.k_weight, angles, setup.eps, grads.k);
    return grads;
  }
  auto out_q = plain_backward(grad_q, q, setup.q_weight, setup);
  auto out_k = plain_backward(grad_k, k, setup.k_weight, setup);
  return {out_q.x, out_k.x, out_q.weight, out_k.weight};
}

QueryKeyValue qkv_norm_rope_forward(const at::Tensor& qkv, std::int64_t num_heads,
                                    std::int64_t num_kv_heads, const QkNormRope& setup, Path path) {
  const auto parts = split_qkv(qkv, num_heads, num_kv_heads);
  auto [q, k] = qk_norm_rope_forward(parts.q, parts.k, setup, path);
  return {std::move(q), std::move(k), parts.v.transpose(1, 2)};
}

QkvGrads qkv_norm_rope_backward(const at::Tensor& grad_q, const at::Tensor& grad_k,
                                const at::Tensor& grad_v, const at::Tensor& qkv,
                                const QkNormRope& setup, Path path) {
  const at::NoGradGuard no_grad;
  const auto parts = split_qkv(qkv, grad_q.size(1), grad_k.size(1));
  if (const auto kernel = heads_kernel(path, parts.q, &kernels::Table::heads_backward)) {
    const auto angles = kernel_angles(setup);
    QkvGrads out{at::empty(qkv.sizes(), qkv.options()), {}, {}};
    const auto slots = split_qkv(out.qkv, grad_q.size(1), grad_k.size(1));
    out.q_weight =
        fast_backward(kernel, grad_q, parts.q, setup.q_weight, angles, setup.eps, slots.q);
    out.k_weight =
        fast_backward(kernel, grad_k, parts.k, setup.k_weight, angles, setup.eps, slots.k);
    slots.v.copy_(grad_v.transpose(1, 2));
    return out;
  }
  const auto grads = qk_norm_rope_backward(grad_q, grad_k, parts.q, parts.k, setup, path);
  auto grad_qkv = at::cat({grads.q, grads.k, grad_v.transpose(1, 2)}, 2).flatten(2);
  return {std::move(grad_qkv), grads.q_weight, grads.k_weight};
}

}  // namespace trireme::ops
