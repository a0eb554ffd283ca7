#include "ops/int8_linear.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/cpu_rows.hpp"
#include "ops/linear_chunks.hpp"

namespace trireme::ops {
namespace {

constexpr double kLargest = 127;

/// Wider rows could exceed the 32 bits of a sum of digits.
constexpr std::int64_t kWidestFixed = std::int64_t{1} << 16;

/// Returns the rows of x in fixed point.
at::Tensor fixed_rows(const at::Tensor& x_in) {
  const at::Tensor x = last_dim_contiguous(x_in);
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t stride = kernels::fixed_row_bytes(x.size(1)) / kFloatBytes;
  const at::Tensor out = at::empty({x.size(0), stride}, x.options().dtype(at::kFloat));
  for_rows(x.size(0), [&](std::int64_t first, std::int64_t last) {
    kernels::table().fix_rows({.element = element_of(x),
                               .weights = kernels::Element::f32,
                               .x = element_at(x, first * x.stride(0)),
                               .x_stride = x.stride(0),
                               .out = out.data_ptr<float>() + first * stride,
                               .out_stride = stride,
                               .rows = last - first,
                               .width = x.size(1)});
  });
  return out;
}

at::Tensor wide_rows(const at::Tensor& x, const at::Tensor& w) {
  return with_row_padding(last_dim_contiguous(x), w.size(1), kernels::Element::f32);
}

bool cpu_accepts_int8(const at::Tensor& x, const Int8Matrix& w) {
  return cpu_accepts(x) && x.size(0) > 0 && w.values.is_cpu();
}

bool cpu_accepts_fixed(const at::Tensor& x, const Int8Matrix& w) {
  return cpu_accepts_int8(x, w) && x.size(1) <= kWidestFixed && kernels::has_vnni() &&
         kernels::table().fixed_linear_rows != nullptr;
}

/// Multiplies rows of x [rows, stride] in the layout of `run`'s kernel.
template <class Run>
at::Tensor multiplied(const at::Tensor& x, const Int8Matrix& w, at::ScalarType result,
                      const Run& run) {
  const at::Tensor values = last_dim_contiguous(w.values);
  const at::Tensor scales = w.scales.contiguous();
  const std::int64_t outs = values.size(0);
  const at::Tensor y = at::empty({x.size(0), outs}, x.options().dtype(result));
  const kernels::LinearRows all{.element = kernels::Element::f32,
                                .y_element = element_of(y),
                                .x = x.const_data_ptr<float>(),
                                .x_stride = x.stride(0),
                                .w = values.const_data_ptr(),
                                .w_stride = values.stride(0),
                                .y = y.data_ptr(),
                                .y_stride = outs,
                                .rows = x.size(0),
                                .in = values.size(1),
                                .first_out = 0,
                                .last_out = outs,
                                .scales = scales.const_data_ptr<float>()};
  for_output_chunks(all, run);
  return y;
}

at::Tensor cpu_int8_linear(const at::Tensor& x, const Int8Matrix& w, at::ScalarType result) {
  return multiplied(wide_rows(x, w.values), w, result, [](kernels::LinearRows part) {
    std::vector<float> widened(static_cast<std::size_t>(part.rows > 1 ? 4 * part.x_stride : 0));
    part.scratch = widened.data();
    kernels::table().int8_linear_rows(part);
  });
}

at::Tensor plain_int8_linear(const at::Tensor& x, const Int8Matrix& w, at::ScalarType result) {
  const at::ScalarType wide = accumulate_type(x);
  return at::linear(x.to(wide), from_int8(w, wide)).to(result);
}

/// Returns the indices of the rows for which steps of fixed point are too coarse.
std::vector<std::int64_t> coarse_rows(const at::Tensor& fixed) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < fixed.size(0); ++row) {
    kernels::FixedHead head;
    std::memcpy(&head, fixed.const_data_ptr<float>() + row * fixed.stride(0), sizeof(head));
    if (head.is_coarse) rows.push_back(row);
  }
  return rows;
}

at::Tensor cpu_fixed_linear(const at::Tensor& x, const Int8Matrix& w, at::ScalarType result) {
  const at::Tensor fixed = fixed_rows(x);
  at::Tensor y = multiplied(fixed, w, result, [](const kernels::LinearRows& part) {
    kernels::table().fixed_linear_rows(part);
  });
  const std::vector<std::int64_t> coarse = coarse_rows(fixed);
  if (coarse.empty()) return y;
  const at::Tensor index = at::tensor(coarse, at::kLong);
  return y.index_copy_(0, index, cpu_int8_linear(x.index_select(0, index), w, result));
}

struct Int8LinearRow {
  bool (*accepts)(const at::Tensor& x, const Int8Matrix& w);
  decltype(&plain_int8_linear) apply;
};

constexpr std::array kInt8Linear{
    Int8LinearRow{cpu_accepts_fixed, cpu_fixed_linear},
    Int8LinearRow{cpu_accepts_int8, cpu_int8_linear},
    Int8LinearRow{nullptr, plain_int8_linear},
};

}  // namespace

Int8Matrix Int8Matrix::at_index(std::int64_t index) const {
  return {values[index].flatten(0, -2), scales[index].flatten()};
}

std::int64_t Int8Matrix::bytes() const {
  return static_cast<std::int64_t>(values.nbytes() + scales.nbytes());
}

at::Tensor row_maxima(const at::Tensor& w) {
  const at::NoGradGuard no_grad;
  return w.to(at::kFloat).abs().amax(-1);
}

Int8Matrix to_int8(const at::Tensor& w) {
  return to_int8(w, row_maxima(w));
}

Int8Matrix to_int8(const at::Tensor& w, const at::Tensor& maxima) {
  const at::NoGradGuard no_grad;
  const at::Tensor wide = w.to(at::kFloat);
  const at::Tensor scales = maxima / kLargest;
  const at::Tensor divisors = scales.masked_fill(scales == 0, 1.0).unsqueeze(-1);
  return {(wide / divisors).nan_to_num_(0, 0, 0).round_().to(at::kChar).contiguous(), scales};
}

at::Tensor from_int8(const Int8Matrix& matrix, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return matrix.values.to(wide).mul_(matrix.scales.to(wide).unsqueeze(-1)).to(dtype);
}

at::Tensor inference_linear(const at::Tensor& x, const Int8Matrix& w, Path path) {
  const at::NoGradGuard no_grad;
  return choose(path, kInt8Linear, x, w).apply(x, w, x.scalar_type());
}

at::Tensor inference_linear_wide(const at::Tensor& x, const Int8Matrix& w, Path path) {
  const at::NoGradGuard no_grad;
  return choose(path, kInt8Linear, x, w).apply(x, w, accumulate_type(x));
}

}  // namespace trireme::ops
