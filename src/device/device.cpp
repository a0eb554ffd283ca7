#include "device/device.hpp"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <malloc.h>
#include <sys/resource.h>

#ifdef TRIREME_HAVE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#endif

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/hash/hex.hpp"
#include "core/process/max_threads.hpp"
#include "core/timer.hpp"
#include "device/allocator_settings.hpp"
#include "device/cpu_peak.hpp"
#include "device/cuda_library.hpp"
#include "device/host_allocator.hpp"
#include "device/own_pages.hpp"
#include "device/peak_table.hpp"
#include "ops/path.hpp"

namespace trireme::device {
namespace {

#ifdef TRIREME_HAVE_CUDA
cudaDeviceProp properties_of(at::Device device) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
  return properties;
}
#endif

/// Waits for all work on the current stream. CPU calls have already finished.
void wait_for([[maybe_unused]] at::Device device) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
#endif
}

/// Returns the FLOP/s of a square matrix product: the best of 5 runs, or of fewer within 0.5 s.
/// `transposed` selects the memory layout of the right-hand side; layer weights are transposed.
double matmul_flops(at::Device device, at::ScalarType dtype, bool transposed) {
  // A GPU multiplies 1024 rows in microseconds, so the launch would dominate the time.
  const std::int64_t size = device.is_cuda() ? 4096 : 1024;
  const auto width = static_cast<double>(size);
  const at::Tensor a = at::ones({size, size}, at::TensorOptions().dtype(dtype).device(device));
  const at::Tensor b = transposed ? a.t() : a;
  at::Tensor out = at::empty_like(a);
  const Timer total;
  double best_s = 1e9;
  for (int i = 0; i < 5 && (i == 0 || total.seconds() < 0.5); ++i) {
    wait_for(device);
    const Timer timer;
    at::matmul_out(out, a, b);
    wait_for(device);
    best_s = std::min(best_s, timer.seconds());
  }
  return 2.0 * width * width * width / best_s;
}

/// AMX multiplies bf16 tiles faster than any loop over vector registers.
bool has_tile_products() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags")) return (line + ' ').find(" amx_bf16 ") != std::string::npos;
  }
  return false;
}

double measure_peak(at::Device device, at::ScalarType compute) {
  const bool half = compute == at::kHalf || compute == at::kBFloat16;
  double flops = device.is_cpu() ? cpu_register_flops(compute) : 0;
  if (!device.is_cpu() || (half && has_tile_products())) {
    for (const bool transposed : {true, false})
      flops = std::max(flops, matmul_flops(device, compute, transposed));
  }
  return flops;
}

}  // namespace

bool has_bf16(at::Device device) {
  constexpr int kAmpere = 8;
  return ops::cuda_generation(device) >= kAmpere;
}

int num_visible_gpus() {
#ifdef TRIREME_HAVE_CUDA
  if (!cuda_library_error().empty())
    fail(ErrorKind::usage, "cannot load LibTorch's CUDA library: {}", cuda_library_error());
  return c10::cuda::device_count();
#else
  return 0;
#endif
}

CudaVersions cuda_versions() {
#ifdef TRIREME_HAVE_CUDA
  int driver = 0;
  int runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  return {driver, runtime};
#else
  return {};
#endif
}

std::string device_name(at::Device device) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) return properties_of(device).name;
#endif
  TRIREME_ASSERT(device.is_cpu());
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "cpu";
}

std::string gpu_identity([[maybe_unused]] at::Device device) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) {
    const cudaDeviceProp properties = properties_of(device);
    std::string text;
    for (const char byte : properties.uuid.bytes) text += hex_text(static_cast<std::uint8_t>(byte));
    return text;
  }
#endif
  return "";
}

at::Device choose_device(const std::string& device, int local_rank, std::string_view setting) {
  if (device != "auto" && device != "cpu" && device != "cuda")
    fail(ErrorKind::usage, "{} {}, must be auto, cpu or cuda", setting, device);
  const int visible = device == "cpu" ? 0 : num_visible_gpus();
  if (visible > 0) {
    use_expandable_segments();
    return {at::kCUDA, static_cast<at::DeviceIndex>(local_rank % visible)};
  }
  if (device == "cuda")
    fail(ErrorKind::usage, "{} cuda, but this rank sees no GPU (nvidia-smi, CUDA_VISIBLE_DEVICES)",
         setting);
  return at::kCPU;
}

std::int64_t set_cpu_threads(std::int64_t threads, int local_size) {
  if (threads == 0) {
    const char* omp = std::getenv("OMP_NUM_THREADS");
    threads = omp != nullptr
                  ? std::strtoll(omp, nullptr, 10)
                  : static_cast<std::int64_t>(std::thread::hardware_concurrency()) / local_size;
  }
  threads = std::clamp<std::int64_t>(threads, 1, kMaxThreads);
  // oneDNN caches a primitive for each of the last 1,024 shapes. Rows of ever new lengths
  // (preference pairs) fill a gigabyte. The variable is read with the first product.
  ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128", /*overwrite=*/0);
  at::set_num_threads(static_cast<int>(threads));
  if (at::get_num_interop_threads() != 1)
    at::set_num_interop_threads(1);  // LibTorch allows this call only once
  return threads;
}

void finish_work(at::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

double known_peak_flops([[maybe_unused]] at::Device device,
                        [[maybe_unused]] at::ScalarType compute) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) return data_sheet_flops(device_name(device), compute);
#endif
  return 0;
}

double measured_peak_flops(at::Device device, at::ScalarType compute) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, at::ScalarType>, double> known;
  const std::lock_guard lock(mutex);
  double& flops = known[{device.str(), compute}];
  if (flops == 0) flops = measure_peak(device, compute);
  return flops;
}

double memory_read_rate(at::Device device) {
  // half a gigabyte, larger than any cache
  constexpr std::int64_t kNumbers = std::int64_t{64} << 20;
  const at::Tensor numbers =
      own_pages(kNumbers, at::TensorOptions(device).dtype(at::kLong)).fill_(1);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const Timer timer;
    if (device.is_cpu()) {
      at::parallel_for(0, kNumbers, kNumbers / 64, [&](std::int64_t first, std::int64_t last) {
        const auto* p = numbers.const_data_ptr<std::int64_t>();
        // partial sums in registers, so that memory limits the speed
        std::array<std::int64_t, 16> sums{};
        for (std::int64_t k = first; k + 16 <= last; k += 16) {
          for (std::size_t lane = 0; lane < sums.size(); ++lane)
            sums[lane] += p[k + static_cast<std::int64_t>(lane)];
        }
        TRIREME_ASSERT(sums[0] > 0);
      });
    } else {
      TRIREME_ASSERT(numbers.sum().item<std::int64_t>() == kNumbers);
    }
    best = std::max(best, static_cast<double>(numbers.nbytes()) / timer.seconds());
  }
  return best;
}

MachineMemory device_memory([[maybe_unused]] at::Device device) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);
    std::size_t free = 0;
    std::size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {static_cast<double>(total), static_cast<double>(free)};
  }
#endif
  return machine_memory();
}

void keep_freed_memory() {
  use_host_allocator();
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

void release_cached_memory([[maybe_unused]] at::Device device) {
#ifdef TRIREME_HAVE_CUDA
  if (!device.is_cuda()) return;
  const c10::cuda::CUDAGuard guard(device);
  c10::cuda::CUDACachingAllocator::emptyCache();
#endif
}

std::int64_t peak_memory_bytes(at::Device device) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    return stats.reserved_bytes[0].peak;
  }
#endif
  TRIREME_ASSERT(device.is_cpu());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace trireme::device
