#include "ops/rms_norm.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "core/operation_record.hpp"
#include "ops/cpu_rows.hpp"
#include "ops/cuda/rms_norm.hpp"
#include "ops/operations.hpp"

namespace trireme::ops {
namespace {

void check_norm(const at::Tensor& x, const at::Tensor& weight) {
  if (x.dim() < 1 || weight.dim() != 1 || x.size(-1) != weight.size(0) ||
      x.scalar_type() != weight.scalar_type()) {
    fail(ErrorKind::internal,
         "rms_norm: x {} {} and weight {} {}: must be [.., D] and [D] of one dtype", x.sizes(),
         x.scalar_type(), weight.sizes(), weight.scalar_type());
  }
}

AddRmsNormOutput plain_norm(const at::Tensor& x, const at::Tensor& residual,
                            const at::Tensor& weight, double eps) {
  auto sum = residual.defined() ? x + residual : x;
  const auto wide = sum.to(accumulate_type(x));
  const auto rstd = wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
  auto y = (wide * rstd).mul_(weight.to(wide.scalar_type())).to(x.scalar_type());
  return {std::move(sum), std::move(y), rstd.reshape({-1})};
}

RmsNormGrads plain_norm_backward(const at::Tensor& grad_y, const at::Tensor& grad_sum,
                                 const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& rstd, bool want_y) {
  const auto type = accumulate_type(x);
  const auto width = x.size(-1);
  const auto scale = rstd.unsqueeze(-1);                        // [rows, 1]
  const auto normed = x.to(type).reshape({-1, width}) * scale;  // [rows, D]
  const auto incoming = grad_y.to(type).reshape({-1, width});   // [rows, D]
  const auto wide_weight = weight.to(type);
  const auto weighted = incoming * wide_weight;                       // [rows, D]
  const auto along = (weighted * normed).mean(-1, /*keepdim=*/true);  // [rows, 1]
  auto grad_x = (weighted - normed * along).mul_(scale).to(x.scalar_type()).view(x.sizes());
  if (grad_sum.defined()) grad_x = grad_x + grad_sum;
  RmsNormGrads grads{std::move(grad_x), (incoming * normed).sum(0)};
  if (want_y) grads.y = (normed * wide_weight).to(x.scalar_type()).view(x.sizes());
  return grads;
}

AddRmsNormOutput cpu_norm(const at::Tensor& x_in, const at::Tensor& residual_in,
                          const at::Tensor& weight_in, double eps) {
  const auto x = x_in.contiguous();
  const auto residual = residual_in.defined() ? residual_in.contiguous() : at::Tensor();
  const auto weight = weight_in.contiguous();
  const auto width = x.size(-1);
  const auto rows = width == 0 ? 0 : x.numel() / width;
  AddRmsNormOutput out{residual.defined() ? at::empty_like(x) : x, at::empty_like(x),
                       at::empty({rows}, x.options().dtype(at::kFloat))};
  for_rows(rows, [&](std::int64_t first, std::int64_t last) {
    kernels::table().rms_forward(
        {.element = element_of(x),
         .x = element_at(x, first * width),
         .residual = residual.defined() ? element_at(residual, first * width) : nullptr,
         .weight = weight.data_ptr(),
         .sum = element_at(out.sum, first * width),
         .y = element_at(out.y, first * width),
         .rstd = out.rstd.data_ptr<float>() + first,
         .rows = last - first,
         .width = width,
         .eps = static_cast<float>(eps)});
  });
  return out;
}

RmsNormGrads cpu_norm_backward(const at::Tensor& grad_y_in, const at::Tensor& grad_sum_in,
                               const at::Tensor& x_in, const at::Tensor& weight_in,
                               const at::Tensor& rstd, bool want_y) {
  const auto grad_y = grad_y_in.contiguous();
  const auto grad_sum = grad_sum_in.defined() ? grad_sum_in.contiguous() : at::Tensor();
  const auto x = x_in.contiguous();
  const auto weight = weight_in.contiguous();
  const auto width = x.size(-1);
  const auto rows = rstd.numel();
  RmsNormGrads grads{at::empty_like(x), {}, want_y ? at::empty_like(x) : at::Tensor()};
  const ChunkSums sums(rows, width, x.device());
  for_row_chunks(rows, [&](std::int64_t first, std::int64_t last) {
    kernels::table().rms_backward(
        {.element = element_of(x),
         .grad_y = element_at(grad_y, first * width),
         .grad_sum = grad_sum.defined() ? element_at(grad_sum, first * width) : nullptr,
         .x = element_at(x, first * width),
         .weight = weight.data_ptr(),
         .rstd = rstd.data_ptr<float>() + first,
         .grad_x = element_at(grads.x, first * width),
         .y = want_y ? element_at(grads.y, first * width) : nullptr,
         .grad_weight = sums.of_row(first),
         .rows = last - first,
         .width = width});
  });
  grads.weight = sums.total();
  return grads;
}

struct RmsNormRow {
  bool (*accepts)(const at::Tensor& x);
  decltype(&plain_norm) forward;
  decltype(&plain_norm_backward) backward;
};

constexpr std::array kRmsNorm{
    RmsNormRow{cpu_accepts, cpu_norm, cpu_norm_backward},
    RmsNormRow{cuda::accepts_norm, cuda::norm, cuda::norm_backward},
    RmsNormRow{nullptr, plain_norm, plain_norm_backward},
};

}  // namespace

AddRmsNormOutput add_rms_norm_forward(const at::Tensor& x, const at::Tensor& residual,
                                      const at::Tensor& weight, double eps, Path path) {
  check_norm(x, weight);
  if (residual.defined()) check_norm(residual, weight);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::norm);
  return choose(path_of(Operation::rms_norm, path), kRmsNorm, x).forward(x, residual, weight, eps);
}

RmsNormGrads add_rms_norm_backward(const at::Tensor& grad_y, const at::Tensor& grad_sum,
                                   const at::Tensor& sum, const at::Tensor& weight,
                                   const at::Tensor& rstd, Path path, bool want_y) {
  check_norm(sum, weight);
  check_norm(grad_y, weight);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::norm);
  return choose(path_of(Operation::rms_norm, path), kRmsNorm, sum)
      .backward(grad_y, grad_sum, sum, weight, rstd, want_y);
}

RmsNormOutput rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps,
                               Path path) {
  auto out = add_rms_norm_forward(x, {}, weight, eps, path);
  return {std::move(out.y), std::move(out.rstd)};
}

RmsNormGrads rms_norm_backward(const at::Tensor& grad_y, const at::Tensor& x,
                               const at::Tensor& weight, const at::Tensor& rstd, Path path,
                               bool want_y) {
  return add_rms_norm_backward(grad_y, {}, x, weight, rstd, path, want_y);
}

}  // namespace trireme::ops
