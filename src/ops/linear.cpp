#include "ops/linear.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "ops/cpu_rows.hpp"

namespace trireme::ops {
namespace {

/// Number of rows of W per kernel call. Less work than kLeastWork runs on one thread.
constexpr std::int64_t kOutsPerChunk = 16;
constexpr std::int64_t kLeastWork = 1 << 16;
/// Number of rows of x from which arithmetic takes longer than reading W.
constexpr std::int64_t kManyRows = 64;

/// Returns x in the layout that the kernel reads.
at::Tensor spread(const at::Tensor& x, const at::Tensor& w) {
  using namespace kernels;
  const std::int64_t in = x.size(1);
  const bool as_it_is = x.scalar_type() == at::kFloat && w.scalar_type() == at::kFloat &&
                        in % kRowAlign == 0 && x.is_contiguous();
  if (as_it_is) return x;
  const std::int64_t stride = (in + kRowAlign - 1) / kRowAlign * kRowAlign;
  at::Tensor out = at::empty({x.size(0), stride}, x.options().dtype(at::kFloat));
  for_rows(x.size(0), [&](std::int64_t first, std::int64_t last) {
    kernels::table().spread_rows({.element = element_of(x),
                                  .weights = element_of(w),
                                  .x = element_at(x, first * x.stride(0)),
                                  .x_stride = x.stride(0),
                                  .out = out.data_ptr<float>() + first * stride,
                                  .out_stride = stride,
                                  .rows = last - first,
                                  .width = in});
  });
  return out;
}

bool cpu_accepts_product(const at::Tensor& x, const at::Tensor& w) {
  return cpu_accepts(x) && x.size(0) > 0 && w.scalar_type() == x.scalar_type();
}

at::Tensor cpu_linear(const at::Tensor& x_in, const at::Tensor& w_in, at::ScalarType result) {
  const at::Tensor w = last_dim_contiguous(w_in);
  const at::Tensor x = spread(last_dim_contiguous(x_in), w);
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
  const std::int64_t chunks = (outs + kOutsPerChunk - 1) / kOutsPerChunk;
  const std::int64_t work = std::max<std::int64_t>(x.size(0) * w.size(1) * kOutsPerChunk, 1);
  const auto run = [&](std::int64_t first, std::int64_t last) {
    kernels::LinearRows part = all;
    part.first_out = first * kOutsPerChunk;
    part.last_out = std::min(outs, last * kOutsPerChunk);
    kernels::table().linear_rows(part);
  };
  if (x.size(0) < kManyRows) {  // each thread reads its part of W as one stream
    at::parallel_for(0, chunks, std::max<std::int64_t>(kLeastWork / work, 1), run);
  } else {
    for_dynamic_chunks(chunks, run);
  }
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
