#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/process/machine_memory.hpp"

namespace trireme {

/// True for a GPU that computes in bfloat16 (compute capability 8 and later: A100, RTX 30).
bool has_bf16(at::Device device);

/// GPUs that this process sees; 0 in a build without CUDA. Throws Error(usage) where there is a driver,
/// but LibTorch's CUDA library cannot be loaded.
int num_visible_gpus();

/// CUDA versions as 12020 for 12.2: the highest that the driver knows (0: no driver), and that of the
/// runtime that is loaded (0: a build without CUDA). A driver older than the runtime shows no GPU.
struct CudaVersions {
  std::int64_t driver = 0;
  std::int64_t runtime = 0;
};

CudaVersions cuda_versions();

/// What the maker calls it.
std::string device_name(at::Device device);

/// Tells a GPU of this machine from its others, whatever it is numbered here; "" for a CPU.
std::string gpu_identity(at::Device device);

/// A name as a device of this rank: cuda:(local rank modulo visible devices). Throws Error(usage) for
/// a GPU asked for where there is none; `setting` as above.
at::Device choose_device(const std::string& device, int local_rank,
                         std::string_view setting = "train.device =");

/// Same layout, same bits: kernels without atomics, one cuBLAS workspace, no search for the fastest
/// algorithm. Before the first operation on the device. Source: PyTorch's notes on reproducibility.
void use_deterministic_kernels(at::Device device);

/// Matrix products on a CPU whose bits do not depend on the number of threads, before the first of
/// them. Source: Intel oneMKL developer guide, conditional numerical reproducibility (strict mode).
void use_thread_independent_products();

/// Sets LibTorch's CPU threads, before its first operation. threads 0: OMP_NUM_THREADS, else cores
/// / ranks on the node, up to kMaxThreads. Returns the number.
std::int64_t set_cpu_threads(std::int64_t threads, int local_size);

/// Waits until the device has done what it was given; nothing on a CPU.
void finish_work(at::Device device);

/// Returns the data-sheet peak of a known GPU in the compute dtype, in dense FLOP/s, for MFU; 0 for
/// every other device.
double known_peak_flops(at::Device device, at::ScalarType compute);

/// Measures that peak, once in a process for each pair: on a CPU multiply-adds in registers on all
/// threads (cpu_peak.hpp), with AMX no less than a matrix product of 16 bits; on a GPU a product
/// (1024^3, best of 5).
double measured_peak_flops(at::Device device, at::ScalarType compute);

/// Bytes a second that reading large memory reaches, with all threads; the best of 5.
double memory_read_rate(at::Device device);

/// Memory of a GPU, or of this machine.
MachineMemory device_memory(at::Device device);

/// Largest memory this rank has used: the allocator's peak on a GPU, resident set on a CPU.
std::int64_t peak_memory_bytes(at::Device device);

/// What tensors in host memory leave when they are freed stays with the process from here on, for the
/// next ones, but for the largest: a step's activations do not get their pages from the system anew,
/// which took up to a fifth of its time. `sparing`, where memory is what a layout saves (ZeRO):
/// fewer stay, and the heap has fewer holes. What lives longer has own_pages().
void keep_freed_memory(bool sparing = false);

}  // namespace trireme
