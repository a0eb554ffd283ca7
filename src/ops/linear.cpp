#include "ops/linear.hpp"

#include <ATen/ATen.h>

#include "ops/cpu_rows.hpp"
#include "ops/linear_chunks.hpp"

namespace trireme::ops {
namespace {

bool cpu_accepts_product(const at::Tensor& x, const at::Tensor& w) {
  return cpu_accepts(x) && x.size(0) > 0 && w.scalar_type() == x.scalar_type();
}

at::Tensor cpu_linear(const at::Tensor& x_in, const at::Tensor& w_in, at::ScalarType result) {
  const at::Tensor w = last_dim_contiguous(w_in);
  const at::Tensor x = with_row_padding(last_dim_contiguous(x_in), w.size(1), element_of(w));
  const std::int64_t outs = w.size(0);
  const at::Tensor y = at::empty({x.size(0), outs}, x_in.options().dtype(result));
  const kernels::LinearRows all{.element = element_of(w),
                                .y_element = element_of(y),
                                .x = x.const_data_ptr<float>(),
                                .x_stride = x.stride(0),
                                .w = w.const_data_ptr(),
                                .w_stride = w.stride(0),
                                .y = y.data_ptr(),
                                .y_stride = outs,
                                .rows = x.size(0),
                                .in = w.size(1),
                                .first_out = 0,
                                .last_out = outs};
  for_output_chunks(all,
                    [](const kernels::LinearRows& part) { kernels::table().linear_rows(part); });
  return y;
}

at::Tensor plain_linear(const at::Tensor& x, const at::Tensor& w, at::ScalarType result) {
  return at::linear(x, w).to(result);
}

struct LinearRow {
  bool (*accepts)(const at::Tensor& x, const at::Tensor& w);
  decltype(&plain_linear) apply;
};

constexpr std::array kLinear{
    LinearRow{cpu_accepts_product, cpu_linear},
    LinearRow{nullptr, plain_linear},
};

}  // namespace

at::Tensor inference_linear(const at::Tensor& x, const at::Tensor& w, Path path) {
  const at::NoGradGuard no_grad;
  return choose(path, kLinear, x, w).apply(x, w, x.scalar_type());
}

at::Tensor inference_linear_wide(const at::Tensor& x, const at::Tensor& w, Path path) {
  const at::NoGradGuard no_grad;
  return choose(path, kLinear, x, w).apply(x, w, accumulate_type(x));
}

}  // namespace trireme::ops
