#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/path.hpp"

namespace trireme::ops {

/// A matrix in int8 with one scale per row (output channel): W = scales * values.
struct Int8Matrix {
  at::Tensor values;  // [.., out, in] int8, from -127 to 127
  at::Tensor scales;  // [.., out] fp32

  /// Returns the matrix [out, in] at `index` of the first dimension. If there are more dimensions,
  /// the remaining ones form `out`.
  [[nodiscard]] Int8Matrix at_index(std::int64_t index) const;

  /// Returns the number of bytes of values and scales.
  [[nodiscard]] std::int64_t bytes() const;
};

/// Returns the largest absolute value of each row of w [.., out, in]: [.., out], fp32.
at::Tensor row_maxima(const at::Tensor& w);

/// Rounds a matrix to int8. The scale of a row is its largest absolute value / 127, so 0 stays 0. A
/// row that is not finite gets a scale that is not finite.
Int8Matrix to_int8(const at::Tensor& w);

/// Like to_int8(w), for w that has only some columns of a matrix. `maxima`: the largest absolute
/// values of the rows of the whole matrix.
Int8Matrix to_int8(const at::Tensor& w, const at::Tensor& maxima);

/// Returns scales * values in `dtype`.
at::Tensor from_int8(const Int8Matrix& matrix, at::ScalarType dtype);

/// Computes x W^T [N, out] from x [N, in] and W [out, in] for inference, in x's dtype: no
/// gradients, sums in fp32 (fp64 for fp64).
///
/// On CPUs with AVX-512 VNNI, a kernel rounds each row of x, up to 65,536 wide, to multiples of its
/// largest absolute value / 32,639, and adds products of integers exactly. The error is at most
/// half such a step times the sum of the absolute values of the row of W. A row of x with an element
/// above 128 times its mean absolute value is not rounded, nor is x on other CPUs.
///
/// The kernels compute each row by the same operations whatever other rows there are, as the
/// kernels of linear.hpp do.
at::Tensor inference_linear(const at::Tensor& x, const Int8Matrix& w, Path path = Path::fast);

/// Like inference_linear, with results in fp32 (fp64 for fp64) that are not rounded to x's dtype.
at::Tensor inference_linear_wide(const at::Tensor& x, const Int8Matrix& w, Path path = Path::fast);

}  // namespace trireme::ops
