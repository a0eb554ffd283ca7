#pragma once
#include "ops/cpu/linear.hpp"

/// y = x W^T for inference, with W in int8 and one factor per row of W. Numbers of W are widened to
/// fp32 in registers, so that memory is read as int8. Every element of y is computed by the same
/// operations in the same order for any number of rows.
namespace trireme::ops::kernels {
namespace {

/// Number of rows of x from which a tile of W is widened once, into scratch memory.
constexpr std::int64_t kWidenedRows = kTileRows + 1;

/// Multiplies rows [row, row + rows) of x with `outs` rows of W by tiles of kTileRows rows.
template <class T>
inline void scaled_tiles(const LinearRows& a, std::int64_t first, std::int64_t end,
                         std::int64_t first_out, std::int64_t outs) {
  for (std::int64_t row = first; row < end; row += kTileRows) {
    const std::int64_t rows = end - row < kTileRows ? end - row : kTileRows;
    dot_tiles<T, kTileRows>(a, row, rows, first_out, outs);
  }
}

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
  const std::int64_t at_once =
      rows_in_cache(a.x_stride * static_cast<std::int64_t>(sizeof(float)), kTileRows);
  for (std::int64_t block = 0; block < a.rows; block += at_once) {
    const std::int64_t end = block + at_once < a.rows ? block + at_once : a.rows;
    for (std::int64_t o = a.first_out; o < a.last_out; o += kOutsPerTile) {
      const std::int64_t outs = a.last_out - o < kOutsPerTile ? a.last_out - o : kOutsPerTile;
      if (end - block < kWidenedRows) {
        scaled_tiles<std::int8_t>(a, block, end, o, outs);
        continue;
      }
      widen_rows(a, o, outs);
      LinearRows widened = a;  // the scratch rows stand for rows [o, o + outs) of W
      widened.w = a.scratch;
      widened.w_stride = a.x_stride;
      widened.w_first_out = o;
      scaled_tiles<float>(widened, block, end, o, outs);
    }
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
