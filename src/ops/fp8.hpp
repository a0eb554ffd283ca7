#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "ops/path.hpp"

/// Matrices in fp8 and their products, without autograd. A matrix is stored as 8-bit codes with an
/// fp32 scale: value = code / scale. The formats are e4m3 (largest value 448) and e5m2 (57344).
/// Source: Micikevicius et al., "FP8 formats for deep learning", 2022. Scales, rounding and the
/// formats of operands follow torchao.float8, so that runs can be compared.
namespace trireme::ops {

/// Scales stay finite below this amax, which is the limit of torchao.float8.
inline constexpr double kLeastFp8Amax = 1e-12;
/// The number of columns of a factor on a GPU is divisible by this number.
inline constexpr std::int64_t kFp8Divisor = 16;

struct Fp8Matrix {
  at::Tensor codes;          // [rows, columns], contiguous; kFloat8_e4m3fn or kFloat8_e5m2
  at::Tensor inverse_scale;  // fp32, [] or [rows, 1]
};

/// The codes of a matrix and of its transpose.
struct Fp8Both {
  Fp8Matrix by_rows;
  Fp8Matrix by_columns;
};

/// Returns the largest value of a format.
double largest_fp8(at::ScalarType format);

/// Returns the largest absolute value of x in fp32: [] for the whole matrix.
at::Tensor amax_of(const at::Tensor& x, Path path = Path::fast);

/// Returns the largest absolute value of each row of x [rows, columns] in fp32: [rows, 1].
at::Tensor row_amax_of(const at::Tensor& x, Path path = Path::fast);

/// Returns the fp32 scale that maps `amax` to the largest value of `format`. With `power_of_two`,
/// the scale is rounded down to a power of two. The scale of an infinite amax is 0 and that of a
/// NaN is NaN, so the codes of a matrix with such values are NaN.
at::Tensor fp8_scale(const at::Tensor& amax, at::ScalarType format, bool power_of_two = false,
                     Path path = Path::fast);

/// Rounds x * scale to the nearest code, ties to even; larger values become the largest code. NaN
/// stays NaN. `x` [rows, columns] may be a transposed view; `scale` is [] or [rows, 1]. On a GPU,
/// the codes of a transposed view may have more columns, which are zeros.
Fp8Matrix quantize_fp8(const at::Tensor& x, const at::Tensor& scale, at::ScalarType format,
                       Path path = Path::fast);

/// Computes quantize_fp8(x, row_scale, format) and quantize_fp8(x.t(), column_scale, format), on a
/// GPU in one pass.
Fp8Both quantize_fp8_both(const at::Tensor& x, const at::Tensor& row_scale,
                          const at::Tensor& column_scale, at::ScalarType format,
                          Path path = Path::fast);

/// Computes a b^T [m, n] from a [m, k] and b [n, k] with fp32 sums, rounded to `result`. A GPU uses
/// _scaled_mm, where `fast_sums` allows sums with fewer bits; n must be divisible by 16, and k is
/// padded. A CPU multiplies the values of the codes in fp32: the reference.
at::Tensor fp8_product(const Fp8Matrix& a, const Fp8Matrix& b, at::ScalarType result,
                       bool fast_sums);

/// Returns the compute capability of a GPU as a number: 89 for 8.9; 0 for a CPU.
int cuda_capability(at::Device device);

/// Returns an error text if a device cannot multiply in fp8; "" if it can. `mode` is the value of
/// train.fp8, `capability` the result of cuda_capability().
std::string fp8_device_mistake(std::string_view mode, std::string_view device_name, int capability);

}  // namespace trireme::ops
