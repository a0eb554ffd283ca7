#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/path.hpp"

/// Products of each expert with its own rows: [bounds[e], bounds[e + 1]) of R rows are expert e's.
namespace trireme::ops {

/// rows [R, in] times their expert's matrix transposed, weights [E, out, in] -> [R, out].
at::Tensor grouped_product(const at::Tensor& rows, const at::Tensor& weights,
                           const std::vector<std::int64_t>& bounds, Path path);
/// Adds a^T b of each expert's rows, a [R, out], b [R, in], to sums [E, out, in].
void add_grouped_outer(const at::Tensor& a, const at::Tensor& b,
                       const std::vector<std::int64_t>& bounds, const at::Tensor& sums, Path path);

/// The two by ATen's grouped kernel, one launch for all experts; `ends` [E] int32 on the device, the
/// end of each expert's rows. Where ATen has no such kernel it waits for the ends, and loops.
at::Tensor aten_grouped_product(const at::Tensor& rows, const at::Tensor& weights,
                                const at::Tensor& ends);
at::Tensor aten_grouped_outer(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);

}  // namespace trireme::ops
