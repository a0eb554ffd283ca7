#pragma once
#include <ATen/ATen.h>

#include "comm/communicator.hpp"
#include "core/dtype.hpp"

namespace trireme::device {

/// Converts a LibTorch scalar type to DType. Throws Error(internal) if there is no matching DType.
DType to_dtype(at::ScalarType type);
at::ScalarType to_scalar_type(DType dtype);

/// Returns the device's current CUDA stream; null on the CPU.
comm::Stream current_stream(at::Device device);

}  // namespace trireme::device
