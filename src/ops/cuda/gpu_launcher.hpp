#pragma once
#include "ops/cuda/kernel.hpp"

namespace trireme::ops::cuda {

/// Compiles kernels for the architecture of their device at first use, or reads them from the cache.
/// If a kernel cannot be compiled or loaded, has() logs the reason once and returns false.
Launcher& gpu_launcher();

/// Returns the file name of a compiled kernel in the cache. The name has a hash of everything that
/// the result depends on: sources, options, architecture and the version of NVRTC.
std::string cubin_name(const Kernel& kernel, Element element, const std::string& architecture);

}  // namespace trireme::ops::cuda
