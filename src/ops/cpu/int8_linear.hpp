#pragma once
#include "ops/cpu/linear.hpp"

/// y = x W^T for inference, with W in int8 and one factor per row of W. Numbers of W are widened to
/// fp32 in registers, so that memory is read as int8. Every element of y is computed by the same
/// operations in the same order for any number of rows.
namespace trireme::ops::kernels {
namespace {

/// Number of rows of x from which a tile of W is widened once, into scratch memory.
constexpr std::int64_t kWidenedRows = kTileRows + 1;

/// Widens `outs` rows of W from `first_out` on into rows of `a.scratch` with the stride of x.
inline void widen_rows(const LinearRows& a, std::int64_t first_out, std::int64_t outs) {
  for (std::int64_t o = 0; o < outs; ++o) {
    const std::int8_t* from = typed<std::int8_t>(a.w) + (first_out + o) * a.w_stride;
    float* to = a.scratch + o * a.x_stride;
    std::int64_t k = 0;
    for (; k + kWide <= a.in; k += kWide) store_wide(to + k, load_wide(from + k));
    for (; k < a.in; ++k) to[k] = from[k];
  }
}

void int8_linear_rows(const LinearRows& a) {
  for_out_tiles(a, a.x_stride * static_cast<std::int64_t>(sizeof(float)), kTileRows,
                [&](std::int64_t first, std::int64_t end, std::int64_t o, std::int64_t outs) {
                  if (end - first < kWidenedRows)
                    return dot_row_tiles<std::int8_t>(a, first, end, o, outs);
                  widen_rows(a, o, outs);
                  LinearRows widened = a;  // the scratch rows stand for rows [o, o + outs) of W
                  widened.w = a.scratch;
                  widened.w_stride = a.x_stride;
                  widened.w_first_out = o;
                  dot_row_tiles<float>(widened, first, end, o, outs);
                });
}

}  // namespace
}  // namespace trireme::ops::kernels
