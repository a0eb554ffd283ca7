#pragma once
#include <string>
#include <vector>

#include "ops/cuda/kernel.hpp"

/// Figures of compiled kernels, for `trireme kernels`. They need NVRTC, but no GPU.
namespace trireme::ops::cuda {

struct KernelFigures {
  std::string name;  // "rms_norm_forward<bf16>"
  std::string architecture;
  std::int64_t cubin_bytes = 0;
  std::int64_t registers = 0;     // per thread
  std::int64_t shared_bytes = 0;  // static, per block
  std::int64_t spill_bytes = 0;   // stores and loads
  /// Resident warps of a multiprocessor, relative to the most, for blocks of the largest size
  /// without dynamic shared memory.
  double occupancy = 0;
};

/// Returns the architectures that figures() accepts: those that NVRTC knows and that are in
/// the table of limits. "sm_90a" is sm_90 with the instructions of that architecture only.
std::vector<std::string> report_architectures();

/// Returns the share of a multiprocessor's warps that can be resident. `architecture` must be in
/// report_architectures().
double occupancy_of(const std::string& architecture, int threads, std::int64_t registers,
                    std::int64_t shared_bytes);

/// Reads ptxas' report in the compiler's log. Throws Error(internal) if the log has none.
KernelFigures figures_of_log(const std::string& log);

/// Compiles all kernels for all elements and architectures on all CPUs. Throws Error(usage) for an
/// unknown architecture, and the errors of nvrtc.hpp.
std::vector<KernelFigures> figures(const std::vector<std::string>& architectures);

}  // namespace trireme::ops::cuda
