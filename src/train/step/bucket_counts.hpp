#pragma once
#include <ATen/core/Tensor.h>

#include "core/exponential_buckets.hpp"

namespace trireme::train {

/// Adds the number of elements of `values` * `factor` in each bucket to `counts` ([kNum] int64, on
/// the device of the values). The counts are exact. Does not wait for a GPU.
///   values  any floating-point dtype; other dtypes than fp64 are counted in fp32
void count_in_buckets(const at::Tensor& values, double factor, const at::Tensor& counts);

/// Like count_in_buckets, with ATen on any device.
void count_in_buckets_plain(const at::Tensor& values, double factor, const at::Tensor& counts);

}  // namespace trireme::train
