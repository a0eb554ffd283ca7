#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

/// The CUDA names that kernels use, for the host. Include it before a kernel's source. A block runs
/// as fibers, one per thread; cuda_block.cpp switches between them at barriers and shuffles.
// NOLINTBEGIN(bugprone-reserved-identifier)

namespace trireme::testing {

struct Dim3 {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

/// The thread that runs now.
struct CudaThread {
  Dim3 thread;
  Dim3 block;
  Dim3 block_size;
  Dim3 grid_size;
};

CudaThread& cuda_thread();

/// Waits for all threads of the block.
void cuda_barrier();

/// Returns the value of the thread of the warp with the number `lane ^ distance`.
float cuda_shuffle_xor(float value, int distance);

void* cuda_dynamic_shared();

/// Runs one block; `first` has the numbers of the block and its thread 0. `backwards` starts the
/// threads in reverse order, which reveals a missing barrier.
void run_block(const CudaThread& first, std::int64_t shared_bytes, bool backwards,
               const std::function<void()>& body);

}  // namespace trireme::testing

#define __shared__ static
#define threadIdx (::trireme::testing::cuda_thread().thread)
#define blockIdx (::trireme::testing::cuda_thread().block)
#define blockDim (::trireme::testing::cuda_thread().block_size)
#define gridDim (::trireme::testing::cuda_thread().grid_size)

inline void __syncthreads() {
  ::trireme::testing::cuda_barrier();
}

inline float __shfl_xor_sync(unsigned, float value, int distance) {
  return ::trireme::testing::cuda_shuffle_xor(value, distance);
}

inline float __uint_as_float(unsigned bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline unsigned __float_as_uint(float value) {
  unsigned bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline long long __double_as_longlong(double value) {
  long long bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float rsqrtf(float x) {
  return 1.0F / std::sqrt(x);
}

inline float host_widen_half(unsigned short bits) {
  __extension__ _Float16 half;
  std::memcpy(&half, &bits, sizeof(half));
  return static_cast<float>(half);
}

inline unsigned short host_narrow_half(float value) {
  __extension__ const auto half = static_cast<_Float16>(value);
  unsigned short bits = 0;
  std::memcpy(&bits, &half, sizeof(bits));
  return bits;
}

inline void* host_dynamic_shared() {
  return ::trireme::testing::cuda_dynamic_shared();
}

// NOLINTEND(bugprone-reserved-identifier)
