#pragma once
#include <string>

#include "ops/cuda/kernel.hpp"

/// The part of the CUDA driver API that starts kernels. Every NVIDIA driver installs libcuda.so.1.
/// Functions throw Error(resource) with the driver's text.
namespace trireme::ops::cuda {

/// Returns the architecture of a device, for example 80 for sm_80.
int device_architecture(int device);

/// Returns the most shared memory of one block, in bytes.
std::int64_t device_shared_bytes(int device);

/// Loads a cubin into the device's primary context, which LibTorch uses too, and returns its
/// function `name`. The function may use all of the block's shared memory.
void* load_function(int device, const std::string& cubin, const std::string& name);

/// Starts a function with one struct of arguments on a stream of the device.
void launch_function(int device, void* function, const Launch& shape, void* stream,
                     const void* arguments);

}  // namespace trireme::ops::cuda
