#pragma once
#include <string>

namespace trireme {

/// Why LibTorch's CUDA library could not be loaded; "" if it could, or is not wanted: it takes a third
/// of a program's start, and is loaded only where there is an NVIDIA driver. That is before main,
/// because LibTorch asks once in a process whether it is there. Every program that holds device.cpp.
const std::string& cuda_library_error();

}  // namespace trireme
