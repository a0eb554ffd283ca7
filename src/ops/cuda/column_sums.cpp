#include "ops/cuda/column_sums.hpp"

#include <ATen/ATen.h>

#include <algorithm>

namespace trireme::ops::cuda {

Chunks row_chunks(std::int64_t rows, std::int64_t most) {
  const std::int64_t per_chunk = std::max<std::int64_t>((rows + most - 1) / most, 1);
  return {(rows + per_chunk - 1) / per_chunk, per_chunk};
}

at::Tensor column_sums(const at::Tensor& x) {
  const std::int64_t width = x.size(1);
  at::Tensor sums = at::empty({width}, x.options());
  launch(kColumnSums, x,
         {.blocks = (width + kSumColumns - 1) / kSumColumns, .threads = kSumColumns * kSumWarps},
         {.rows_in = data_of<float>(x),
          .sums = data_of<float>(sums),
          .rows = x.size(0),
          .width = width});
  return sums;
}

}  // namespace trireme::ops::cuda
