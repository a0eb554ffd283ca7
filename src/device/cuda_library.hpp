#pragma once
#include <string>

namespace trireme::device {

/// Returns why LibTorch's CUDA library could not be loaded, or "" if it was loaded or not needed.
/// Loading takes a third of a program's start, so it happens only on machines with an NVIDIA
/// driver. It happens before main(), because LibTorch checks for the library once per process.
/// Every program that links device.cpp includes this step.
const std::string& cuda_library_error();

}  // namespace trireme::device
