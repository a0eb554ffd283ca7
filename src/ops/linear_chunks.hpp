#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "ops/cpu_rows.hpp"

/// Helpers of the CPU products for inference (linear.cpp, int8_linear.cpp).
namespace trireme::ops {

/// Returns x [N, in] in the layout that kernels read for W of element `weights`: padded rows of
/// fp32. Returns x itself if it has this layout.
inline at::Tensor with_row_padding(const at::Tensor& x, std::int64_t in, kernels::Element weights) {
  using namespace kernels;
  const bool as_it_is = x.scalar_type() == at::kFloat && weights == Element::f32 &&
                        in % kRowAlign == 0 && x.is_contiguous();
  if (as_it_is) return x;
  const std::int64_t stride = (in + kRowAlign - 1) / kRowAlign * kRowAlign;
  at::Tensor out = at::empty({x.size(0), stride}, x.options().dtype(at::kFloat));
  for_rows(x.size(0), [&](std::int64_t first, std::int64_t last) {
    kernels::table().spread_rows({.element = element_of(x),
                                  .weights = weights,
                                  .x = element_at(x, first * x.stride(0)),
                                  .x_stride = x.stride(0),
                                  .out = out.data_ptr<float>() + first * stride,
                                  .out_stride = stride,
                                  .rows = last - first,
                                  .width = in});
  });
  return out;
}

/// Calls run(part) for ranges of rows of W on ATen's threads. Each thread reads its part of W as
/// one stream if there are few rows of x.
template <class Run>
void for_output_chunks(const kernels::LinearRows& all, const Run& run) {
  constexpr std::int64_t kOutsPerChunk = 16;
  constexpr std::int64_t kLeastWork = 1 << 16;  // less work runs on one thread
  const std::int64_t outs = all.last_out;
  const std::int64_t chunks = (outs + kOutsPerChunk - 1) / kOutsPerChunk;
  const std::int64_t work = std::max<std::int64_t>(all.rows * all.in * kOutsPerChunk, 1);
  const auto run_chunks = [&](std::int64_t first, std::int64_t last) {
    kernels::LinearRows part = all;
    part.first_out = first * kOutsPerChunk;
    part.last_out = std::min(outs, last * kOutsPerChunk);
    run(part);
  };
  if (all.rows < kernels::kManyRows) {
    at::parallel_for(0, chunks, std::max<std::int64_t>(kLeastWork / work, 1), run_chunks);
  } else {
    for_dynamic_chunks(chunks, run_chunks);
  }
}

}  // namespace trireme::ops
