#include "ops/rope.hpp"

#include <ATen/ATen.h>

#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "core/operation_record.hpp"
#include "ops/cpu_rows.hpp"
#include "ops/cuda/rope.hpp"
#include "ops/operations.hpp"

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
  // Reading another device's memory would synchronize with it.
  if (setup.positions.device() != at::kCPU || setup.positions.numel() == 0) return;
  const auto low = setup.positions.min().item<std::int64_t>();
  const auto high = setup.positions.max().item<std::int64_t>();
  if (low < 0 || high >= setup.tables.cos.size(0)) {
    fail(ErrorKind::data,
         "positions {} to {}, must be in [0, {}): model.max_seq_len is too small for this batch",
         low, high, setup.tables.cos.size(0));
  }
}

/// Returns cos and sin of every token: [B, T, 1, D/2].
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

at::Tensor plain_rotate(const at::Tensor& x, const at::Tensor& weight, const QkNormRope& setup) {
  auto wide = x.to(accumulate_type(x));
  if (weight.defined()) wide = wide * inverse_rms(wide, setup.eps) * weight.to(wide.scalar_type());
  const auto [cos, sin] = gather_angles(setup, wide.scalar_type());
  return rotate(wide, cos, sin).to(x.scalar_type()).transpose(1, 2).contiguous();
}

using QueryKey = std::pair<at::Tensor, at::Tensor>;

QueryKey plain_rope(const at::Tensor& q, const at::Tensor& k, const QkNormRope& setup) {
  return {plain_rotate(q, setup.q_weight, setup), plain_rotate(k, setup.k_weight, setup)};
}

/// Writes the gradient of x to `grad_x` [B, T, H, D]. Returns the weight gradient, if any.
at::Tensor plain_rotate_back(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                             const QkNormRope& setup, const at::Tensor& grad_x) {
  const auto type = accumulate_type(x);
  const auto [cos, sin] = gather_angles(setup, type);
  const auto turned_back = rotate(grad.to(type).transpose(1, 2), cos, -sin);  // [B, T, H, D]
  if (!weight.defined()) {
    grad_x.copy_(turned_back);
    return {};
  }
  const auto wide = x.to(type);
  const auto rstd = inverse_rms(wide, setup.eps);
  const auto normed = wide * rstd;
  const auto weighted = turned_back * weight.to(type);
  const auto along = (weighted * normed).mean(-1, /*keepdim=*/true);
  grad_x.copy_((weighted - normed * along) * rstd);
  return (turned_back * normed).sum(at::IntArrayRef{0, 1, 2});
}

/// Writes to slot_q and slot_k [B, T, heads, D], which may have any strides. Returns the weight
/// gradients; undefined without norm.
QueryKey plain_rope_backward(const at::Tensor& grad_q, const at::Tensor& grad_k,
                             const at::Tensor& q, const at::Tensor& k, const QkNormRope& setup,
                             const at::Tensor& slot_q, const at::Tensor& slot_k) {
  return {plain_rotate_back(grad_q, q, setup.q_weight, setup, slot_q),
          plain_rotate_back(grad_k, k, setup.k_weight, setup, slot_k)};
}

/// Tables and positions in the layout of the kernels, computed once for q and k.
struct Angles {
  at::Tensor cos;
  at::Tensor sin;
  at::Tensor positions;
};

Angles kernel_angles(const QkNormRope& setup) {
  return {setup.tables.cos.to(at::kFloat).contiguous(),
          setup.tables.sin.to(at::kFloat).contiguous(), setup.positions.contiguous()};
}

bool cpu_accepts_heads(const at::Tensor& q) {
  return cpu_accepts(q) && q.size(3) <= kernels::kMaxHeadWidth;
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

at::Tensor cpu_rotate(const at::Tensor& x_in, const at::Tensor& weight, const Angles& angles,
                      double eps) {
  const auto x = last_dim_contiguous(x_in);
  auto out = at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options());
  auto call = kernel_call(x, weight, angles, eps);
  call.out = out.data_ptr();
  call.out_strides = strides_bhtd(out);
  for_rows(x.size(0) * x.size(1), [&](std::int64_t first, std::int64_t last) {
    auto part = call;
    part.first_token = first;
    part.last_token = last;
    kernels::table().heads_forward(part);
  });
  return out;
}

QueryKey cpu_rope(const at::Tensor& q, const at::Tensor& k, const QkNormRope& setup) {
  const auto angles = kernel_angles(setup);
  return {cpu_rotate(q, setup.q_weight, angles, setup.eps),
          cpu_rotate(k, setup.k_weight, angles, setup.eps)};
}

/// Has the same result as plain_rotate_back.
at::Tensor cpu_rotate_back(const at::Tensor& grad_in, const at::Tensor& x_in,
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
    kernels::table().heads_backward(part);
  });
  return weight.defined() ? sums.total() : at::Tensor();
}

QueryKey cpu_rope_backward(const at::Tensor& grad_q, const at::Tensor& grad_k, const at::Tensor& q,
                           const at::Tensor& k, const QkNormRope& setup, const at::Tensor& slot_q,
                           const at::Tensor& slot_k) {
  const auto angles = kernel_angles(setup);
  return {cpu_rotate_back(grad_q, q, setup.q_weight, angles, setup.eps, slot_q),
          cpu_rotate_back(grad_k, k, setup.k_weight, angles, setup.eps, slot_k)};
}

struct QkNormRopeRow {
  bool (*accepts)(const at::Tensor& q);
  decltype(&plain_rope) forward;
  decltype(&plain_rope_backward) backward;
};

constexpr std::array kQkNormRope{
    QkNormRopeRow{cpu_accepts_heads, cpu_rope, cpu_rope_backward},
    QkNormRopeRow{cuda::accepts_rope, cuda::rope, cuda::rope_backward},
    QkNormRopeRow{nullptr, plain_rope, plain_rope_backward},
};

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
  const auto indices = at::arange(head_dim / 2, at::kDouble);
  const auto frequencies = at::pow(theta, indices * (-2.0 / static_cast<double>(head_dim)));
  const std::span<const double> values(frequencies.const_data_ptr<double>(),
                                       static_cast<std::size_t>(head_dim / 2));
  return rope_tables(max_positions, values, 1.0, dtype, device);
}

RopeTables rope_tables(std::int64_t max_positions, std::span<const double> frequencies,
                       double scale, at::ScalarType dtype, at::Device device) {
  const at::NoGradGuard no_grad;
  const auto turns = at::tensor(at::ArrayRef<double>(frequencies.data(), frequencies.size()),
                                at::kDouble);  // [D/2]
  const auto angles = at::outer(at::arange(max_positions, at::kDouble), turns);
  return {(angles.cos() * scale).to(device, dtype), (angles.sin() * scale).to(device, dtype)};
}

QueryKeyValue qkv_norm_rope_forward(const at::Tensor& qkv, std::int64_t num_heads,
                                    std::int64_t num_kv_heads, const QkNormRope& setup, Path path) {
  const auto parts = split_qkv(qkv, num_heads, num_kv_heads);
  check_heads(parts.q, setup.q_weight, setup);
  check_heads(parts.k, setup.k_weight, setup);
  check_positions(setup);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::rope);
  auto [q, k] =
      choose(path_of(Operation::rope, path), kQkNormRope, parts.q).forward(parts.q, parts.k, setup);
  return {std::move(q), std::move(k), parts.v.transpose(1, 2)};
}

QkvGrads qkv_norm_rope_backward(const at::Tensor& grad_q, const at::Tensor& grad_k,
                                const at::Tensor& grad_v, const at::Tensor& qkv,
                                const QkNormRope& setup, Path path) {
  const auto parts = split_qkv(qkv, grad_q.size(1), grad_k.size(1));
  check_heads(parts.q, setup.q_weight, setup);
  check_heads(parts.k, setup.k_weight, setup);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::rope);
  QkvGrads grads{at::empty(qkv.sizes(), qkv.options()), {}, {}};
  const auto slots = split_qkv(grads.qkv, grad_q.size(1), grad_k.size(1));
  std::tie(grads.q_weight, grads.k_weight) =
      choose(path_of(Operation::rope, path), kQkNormRope, parts.q)
          .backward(grad_q, grad_k, parts.q, parts.k, setup, slots.q, slots.k);
  slots.v.copy_(grad_v.transpose(1, 2));
  return grads;
}

}  // namespace trireme::ops
