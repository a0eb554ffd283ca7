#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>

namespace trireme::ops {

/// The implementations that an operation may use. Results are equal up to rounding.
///   fast   the first row of the operation's table that accepts the tensors
///   plain  ATen operations only: every device and dtype, fp64 included; the reference
enum class Path { fast, plain };

inline Path path_of(bool fused) {
  return fused ? Path::fast : Path::plain;
}

/// Returns the row of an operation's table to use. A row has a predicate `accepts` on device, dtype
/// and shape, and functions on whole tensors. Rows are in order of preference. The last row is
/// plain: it accepts everything and has no predicate.
///
/// The functions run on the caller's thread: a GPU implementation launches on LibTorch's current
/// stream of that thread, a CPU implementation starts its threads.
template <class Row, std::size_t N, class... Inputs>
const Row& choose(Path path, const std::array<Row, N>& table, const Inputs&... inputs) {
  const auto plain = table.end() - 1;
  if (path == Path::plain) return *plain;
  return *std::find_if(table.begin(), plain,
                       [&](const Row& row) { return row.accepts(inputs...); });
}

/// Returns fp64 for fp64, else fp32: the dtype of sums, saved statistics and weight gradients.
at::ScalarType accumulate_type(const at::Tensor& x);

/// Returns the major compute capability of a GPU (8: Ampere, 9: Hopper); 0 for a CPU.
int cuda_generation(at::Device device);

}  // namespace trireme::ops
