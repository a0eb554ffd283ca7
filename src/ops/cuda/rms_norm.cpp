#include "ops/cuda/rms_norm.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "ops/cuda/column_sums.hpp"

namespace trireme::ops::cuda {

bool accepts_norm(const at::Tensor& x) {
  return accepts(x, {&kRmsNormForward, &kRmsNormBackward, &kColumnSums});
}

AddRmsNormOutput norm(const at::Tensor& x_in, const at::Tensor& residual_in,
                      const at::Tensor& weight_in, double eps) {
  const at::Tensor x = x_in.contiguous();
  const at::Tensor residual = contiguous_or_undefined(residual_in);
  const at::Tensor weight = weight_in.contiguous();
  const std::int64_t width = x.size(-1);
  const std::int64_t rows = width == 0 ? 0 : x.numel() / width;
  AddRmsNormOutput out{residual.defined() ? at::empty_like(x) : x, at::empty_like(x),
                       at::empty({rows}, x.options().dtype(at::kFloat))};
  launch(kRmsNormForward, x, {rows, threads_for_row(width, x)},
         {.x = x.data_ptr(),
          .residual = data_or_null(residual),
          .weight = weight.data_ptr(),
          .sum = out.sum.data_ptr(),
          .y = out.y.data_ptr(),
          .rstd = data_of<float>(out.rstd),
          .width = width,
          .eps = static_cast<float>(eps)});
  return out;
}

RmsNormGrads norm_backward(const at::Tensor& grad_y_in, const at::Tensor& grad_sum_in,
                           const at::Tensor& x_in, const at::Tensor& weight_in,
                           const at::Tensor& rstd, bool want_y) {
  const at::Tensor grad_y = grad_y_in.contiguous();
  const at::Tensor grad_sum = contiguous_or_undefined(grad_sum_in);
  const at::Tensor x = x_in.contiguous();
  const at::Tensor weight = weight_in.contiguous();
  const std::int64_t width = x.size(-1);
  const std::int64_t rows = rstd.numel();
  const Chunks chunks = row_chunks(rows);
  const std::int64_t sums_bytes = width * static_cast<std::int64_t>(sizeof(float));
  const bool fits = sums_bytes + kStaticSharedBytes <= launcher().max_shared_bytes(x.device());
  RmsNormGrads grads{at::empty_like(x), {}, want_y ? at::empty_like(x) : at::Tensor()};
  const at::Tensor partial = at::empty({chunks.count, width}, rstd.options());
  launch(kRmsNormBackward, x, {chunks.count, threads_for_row(width, x), fits ? sums_bytes : 0},
         {.grad_y = grad_y.data_ptr(),
          .grad_sum = data_or_null(grad_sum),
          .x = x.data_ptr(),
          .weight = weight.data_ptr(),
          .rstd = data_of<float>(rstd),
          .grad_x = grads.x.data_ptr(),
          .y = data_or_null(grads.y),
          .partial = data_of<float>(partial),
          .rows = rows,
          .rows_per_block = chunks.rows,
          .width = width,
          .has_shared_sums = fits});
  grads.weight = column_sums(partial);
  return grads;
}

}  // namespace trireme::ops::cuda
