#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/path.hpp"

/// Matrix products of experts with their rows: expert e has rows [bounds[e], bounds[e + 1]) of R.
namespace trireme::ops {

/// Multiplies rows [R, in] with their expert's transposed matrix of weights [E, out, in]: [R, out].
at::Tensor grouped_product(const at::Tensor& rows, const at::Tensor& weights,
                           const std::vector<std::int64_t>& bounds, Path path);
/// Adds a^T b of each expert's rows, with a [R, out] and b [R, in], to sums [E, out, in].
void add_grouped_outer(const at::Tensor& a, const at::Tensor& b,
                       const std::vector<std::int64_t>& bounds, const at::Tensor& sums, Path path);

/// Like the functions above, with ATen's grouped kernel: one launch for all experts. `ends` [E]
/// int32 on the device is the end of each expert's rows. Without a kernel ATen waits and loops.
at::Tensor aten_grouped_product(const at::Tensor& rows, const at::Tensor& weights,
                                const at::Tensor& ends);
at::Tensor aten_grouped_outer(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);

}  // namespace trireme::ops
