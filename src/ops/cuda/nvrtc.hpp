#pragma once
#include <string>
#include <vector>

#include "ops/cuda/kernel.hpp"

/// NVRTC, the run-time compiler of CUDA. LibTorch's wheel brings it; no CUDA toolkit is needed.
namespace trireme::ops::cuda {

/// Older GPUs use plain operations.
inline constexpr int kLeastArchitecture = 70;

struct Compiled {
  std::string cubin;
  std::string log;  // ptxas reports registers, shared memory and spills
};

/// All functions throw Error(resource) if NVRTC cannot be loaded; the message names the library.

/// Returns the version, for example "13.0".
std::string nvrtc_version();

/// Returns the architectures that this NVRTC compiles for, from sm_70 on: 80 for sm_80.
std::vector<int> nvrtc_architectures();

/// Returns the source of a program with one entry point, Kernel::name.
std::string program_of(const Kernel& kernel, Element element);

/// Returns the compiler's options for an architecture, for example "sm_80" or "sm_90a".
std::vector<std::string> compile_options(const std::string& architecture);

/// Compiles a kernel for one architecture. Throws Error(internal) with the compiler's log if the
/// source has an error, and Error(resource) for an architecture that NVRTC does not know.
Compiled compile(const Kernel& kernel, Element element, const std::string& architecture);

/// Compiles a program that includes the files of sources.hpp.
Compiled compile_program(const std::string& program, const std::string& name,
                         const std::string& architecture);

}  // namespace trireme::ops::cuda
