#include "ops/cuda/fp8.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "ops/cuda/column_sums.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr std::int64_t kAmaxBlocks = 1024;

bool has_rows(const at::Tensor& x) {
  return x.stride(1) == 1 || x.size(1) <= 1;
}

/// Returns true if the elements of a column of x are adjacent, as in a transposed view.
bool has_columns(const at::Tensor& x) {
  return !has_rows(x) && x.stride(0) == 1;
}

at::Tensor fp8_rows(const at::Tensor& x) {
  return has_rows(x) ? x : x.contiguous();
}

/// Returns the elements of x as rows. A matrix without gaps gets long rows, which use all threads.
at::Tensor long_rows(const at::Tensor& x_in) {
  constexpr std::int64_t kLongest = 8192;
  constexpr std::int64_t kShortest = 256;
  const at::Tensor x = fp8_rows(has_columns(x_in) ? x_in.t() : x_in);
  std::int64_t width = kLongest;
  while (x.numel() % width != 0) width /= 2;
  return x.is_contiguous() && width >= kShortest ? x.view({-1, width}) : x;
}

Fp8Amax amax_arguments(const at::Tensor& x, const Chunks& chunks, const at::Tensor& largest) {
  return {.x = data_or_null(x),
          .largest = data_of<float>(largest),
          .stride = x.stride(0),
          .rows = x.size(0),
          .rows_per_block = chunks.rows,
          .width = x.size(1)};
}

void launch_amax(const at::Tensor& x, const Chunks& chunks, const at::Tensor& largest) {
  launch(kFp8Amax, x, {chunks.count, threads_for_row(x.size(1), x)},
         amax_arguments(x, chunks, largest));
}

void launch_column_amax(const at::Tensor& x, const Chunks& chunks, const at::Tensor& largest) {
  const std::int64_t columns = 32 * 16 / static_cast<std::int64_t>(x.element_size());
  launch(kFp8ColumnAmax, x,
         {.blocks = (x.size(1) + columns - 1) / columns,
          .threads = kFp8Threads,
          .blocks_y = static_cast<int>(chunks.count)},
         amax_arguments(x, chunks, largest));
}

/// Returns the largest absolute value of each column [width].
at::Tensor column_amax(const at::Tensor& x) {
  const std::int64_t width = x.size(1);
  constexpr std::int64_t kColumns = 256;
  constexpr std::int64_t kLeastRows = 32;  // four for each warp
  const std::int64_t most =
      std::min(kAmaxBlocks * kColumns / std::max(width, kColumns), x.size(0) / kLeastRows);
  const Chunks chunks = row_chunks(x.size(0), std::max<std::int64_t>(most, 1));
  const auto options = x.options().dtype(at::kFloat);
  const at::Tensor partial = at::empty({chunks.count, width}, options);
  launch_column_amax(x, chunks, partial);
  if (chunks.count == 1) return partial.view({width});
  at::Tensor largest = at::empty({width}, options);
  launch_column_amax(partial, {1, chunks.count}, largest);
  return largest;
}

/// Returns the arguments of codes [rows, pitch], which the kernel writes; null without a scale.
Fp8Codes codes_of(const Fp8Matrix& matrix, const at::Tensor& scale) {
  if (!scale.defined()) return {};
  return {.codes = static_cast<unsigned char*>(data_or_null(matrix.codes)),
          .scale = data_of<float>(scale),
          .inverse_scale = data_of<float>(matrix.inverse_scale),
          .has_scales = scale.dim() == 2};
}

Fp8Matrix empty_codes(const at::Tensor& x, at::IntArrayRef sizes, const at::Tensor& scale,
                      at::ScalarType format) {
  if (!scale.defined()) return {};
  return {at::empty(sizes, x.options().dtype(format)), at::empty_like(scale)};
}

}  // namespace

bool accepts_fp8(const at::Tensor& x) {
  return accepts(x, {&kFp8Amax, &kFp8ColumnAmax, &kFp8Scales, &kQuantizeFp8});
}

at::Tensor fp8_amax(const at::Tensor& x_in) {
  const at::Tensor x = long_rows(x_in);
  const Chunks chunks = row_chunks(x.size(0), kAmaxBlocks);
  const auto options = x.options().dtype(at::kFloat);
  const at::Tensor partial = at::empty({1, chunks.count}, options);
  launch_amax(x, chunks, partial);
  if (chunks.count == 1) return partial[0][0];
  at::Tensor largest = at::empty({}, options);
  launch_amax(partial, {1, 1}, largest);
  return largest;
}

at::Tensor fp8_row_amax(const at::Tensor& x_in) {
  if (has_columns(x_in)) return column_amax(x_in.t()).unsqueeze(1);
  const at::Tensor x = fp8_rows(x_in);
  at::Tensor largest = at::empty({x.size(0), 1}, x.options().dtype(at::kFloat));
  launch_amax(x, {x.size(0), 1}, largest);
  return largest;
}

at::Tensor fp8_scale(const at::Tensor& amax_in, at::ScalarType format, bool power_of_two) {
  const at::Tensor amax = amax_in.contiguous();
  at::Tensor scales = at::empty_like(amax);
  launch(kFp8Scales, amax, {(amax.numel() + kFp8Threads - 1) / kFp8Threads, kFp8Threads},
         {.amax = data_of<float>(amax),
          .scales = data_of<float>(scales),
          .count = amax.numel(),
          .largest_code = largest_fp8(format),
          .least_amax = kLeastFp8Amax,
          .power_of_two = power_of_two});
  return scales;
}

Fp8Both quantize_fp8(const at::Tensor& x_in, const at::Tensor& row_scale_in,
                     const at::Tensor& column_scale_in, at::ScalarType format) {
  if (has_columns(x_in)) {
    Fp8Both transposed = quantize_fp8(x_in.t(), column_scale_in, row_scale_in, format);
    return {std::move(transposed.by_columns), std::move(transposed.by_rows)};
  }
  const at::Tensor x = fp8_rows(x_in);
  const at::Tensor row_scale = contiguous_or_undefined(row_scale_in);
  const at::Tensor column_scale = contiguous_or_undefined(column_scale_in);
  const std::int64_t rows = x.size(0);
  const std::int64_t width = x.size(1);
  const std::int64_t pitch = (rows + kFp8Divisor - 1) / kFp8Divisor * kFp8Divisor;
  Fp8Both both{empty_codes(x, {rows, width}, row_scale, format),
               empty_codes(x, {width, pitch}, column_scale, format)};
  const auto tiles = [](std::int64_t size) { return (size + kFp8Tile - 1) / kFp8Tile; };
  launch(kQuantizeFp8, x, {tiles(rows) * tiles(width), kFp8Threads},
         {.x = data_or_null(x),
          .by_rows = codes_of(both.by_rows, row_scale),
          .by_columns = codes_of(both.by_columns, column_scale),
          .stride = x.stride(0),
          .rows = rows,
          .width = width,
          .pitch = pitch,
          .is_e5m2 = format == at::kFloat8_e5m2});
  return both;
}

}  // namespace trireme::ops::cuda
