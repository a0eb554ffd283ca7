#pragma once
#include <ATen/ATen.h>

#include "comm/communicator.hpp"
#include "core/dtype.hpp"

namespace trireme {

/// Between LibTorch's types and ours. Throws Error(internal) for a scalar type that has no DType.
DType to_dtype(at::ScalarType type);
at::ScalarType to_scalar_type(DType dtype);

/// The device's current stream; null on the CPU.
Stream current_stream(at::Device device);

}  // namespace trireme
