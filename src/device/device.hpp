#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/process/machine_memory.hpp"

namespace trireme::device {

/// True for a GPU that computes in bfloat16 (compute capability 8 and later: A100, RTX 30).
bool has_bf16(at::Device device);

/// Returns the number of GPUs this process sees; 0 in a build without CUDA. Throws Error(usage) if
/// there is a driver but LibTorch's CUDA library cannot be loaded.
int num_visible_gpus();

/// CUDA versions, for example 12020 for 12.2. `driver` is the highest version the driver supports
/// (0: no driver), `runtime` is the loaded runtime (0: built without CUDA). If the driver is older
/// than the runtime, no GPU is visible.
struct CudaVersions {
  std::int64_t driver = 0;
  std::int64_t runtime = 0;
};

CudaVersions cuda_versions();

/// Returns the vendor's name of the device.
std::string device_name(at::Device device);

/// Returns the UUID of a GPU, which does not depend on its index in this process; "" for a CPU.
std::string gpu_identity(at::Device device);

/// Selects this rank's device: auto, cpu or cuda. A GPU has the index local_rank modulo visible
/// GPUs. Throws Error(usage) if cuda is requested but there is no GPU; `setting` names the option
/// in the error.
at::Device choose_device(const std::string& device, int local_rank,
                         std::string_view setting = "train.device =");

/// Sets LibTorch's number of CPU threads and returns it; call it before the first LibTorch
/// operation. `threads` 0 means OMP_NUM_THREADS if set, otherwise cores divided by the ranks on the
/// node. The maximum is kMaxThreads.
std::int64_t set_cpu_threads(std::int64_t threads, int local_size);

/// Waits until the device has finished all submitted work; does nothing on a CPU.
void finish_work(at::Device device);

/// Returns a known GPU's data-sheet peak in the compute dtype, in dense FLOP/s; 0 if unknown.
double known_peak_flops(at::Device device, at::ScalarType compute);

/// Measures the same peak, once per process, device and dtype. A CPU runs multiply-adds in
/// registers on all threads (cpu_peak.hpp), and with AMX also 16-bit matrix products. A GPU runs
/// matrix products (4096^3, best of 5).
double measured_peak_flops(at::Device device, at::ScalarType compute);

/// Returns the rate of reading large memory with all threads, in bytes/s; the best of 5.
double memory_read_rate(at::Device device);

/// Returns the memory of a GPU, or of this machine for a CPU.
MachineMemory device_memory(at::Device device);

/// Returns the memory that LibTorch's allocator caches for later tensors to the device; waits for
/// the device. Does nothing on a CPU.
void release_cached_memory(at::Device device);

/// Returns this rank's peak memory: reserved by the allocator on a GPU, resident set on a CPU.
std::int64_t peak_memory_bytes(at::Device device);

/// Makes the process keep freed host memory of tensors, except the largest, for later tensors. A
/// step's activations then do not fault in new pages, which took up to a fifth of the step time.
/// Long-lived tensors use own_pages().
void keep_freed_memory();

}  // namespace trireme::device
