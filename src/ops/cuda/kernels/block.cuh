#pragma once
/// Building blocks of the kernels: 16-bit floats, vector loads and stores, and reductions. NVRTC
/// compiles this header for a GPU, with every function on the device. The tests compile it with the
/// host's compiler, after tests/support/cuda_block.hpp, which defines the CUDA names.
#include <cstdint>

namespace trireme::ops::cuda {

struct Bf16 {
  unsigned short bits;
};

struct Half {
  unsigned short bits;
};

inline float widen(Bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}

inline float widen(Half x) {
#ifdef __CUDACC__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
#else
  return host_widen_half(x.bits);
#endif
}

inline float widen(float x) {
  return x;
}

/// Rounds to nearest even.
template <class T>
inline T narrow(float x);

template <>
inline float narrow<float>(float x) {
  return x;
}

template <>
inline Bf16 narrow<Bf16>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  Bf16 value;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
  return value;
#else
  const unsigned bits = __float_as_uint(x);
  const unsigned quiet_nan = (bits >> 16) | 0x40U;
  const unsigned rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  return {static_cast<unsigned short>(x == x ? rounded : quiet_nan)};
#endif
}

template <>
inline Half narrow<Half>(float x) {
#ifdef __CUDACC__
  Half value;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
  return value;
#else
  return {host_narrow_half(x)};
#endif
}

inline std::uint64_t bits_of(double x) {
  return static_cast<std::uint64_t>(__double_as_longlong(x));
}

template <class T>
inline const T* typed(const void* p) {
  return static_cast<const T*>(p);
}

template <class T>
inline T* typed(void* p) {
  return static_cast<T*>(p);
}

/// N values in registers.
template <int N>
struct Floats {
  float values[N];

  float& operator[](int i) { return values[i]; }

  const float& operator[](int i) const { return values[i]; }
};

/// N elements that are loaded and stored as one vector of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T elements[N];
};

/// The number of elements in 16 bytes.
template <class T>
constexpr int kPack = 16 / sizeof(T);

/// Loads N elements. `p` must be aligned like Pack<T, N>.
template <int N, class T>
inline Floats<N> load(const T* p) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(p);
  Floats<N> x;
  for (int i = 0; i < N; ++i) x[i] = widen(pack.elements[i]);
  return x;
}

template <int N, class T>
inline void store(T* p, const Floats<N>& x) {
  Pack<T, N> pack;
  for (int i = 0; i < N; ++i) pack.elements[i] = narrow<T>(x[i]);
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}

/// Rounds a value to T and returns it as fp32.
template <class T>
inline float rounded(float x) {
  return widen(narrow<T>(x));
}

/// Returns true if rows of `width` elements at these addresses (null: unused) can be read by vectors
/// of kPack<T> elements.
template <class T, class... Pointers>
inline bool is_packed(std::int64_t width, const Pointers*... pointers) {
  return width % kPack<T> == 0 && ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

template <int N>
struct Lanes {
  static constexpr int count = N;
};

/// Calls body(column, lanes) for all groups of decltype(lanes)::count columns that this thread of
/// the block owns, among the columns [0, width). A thread owns the same columns in every call.
template <class T, class Body>
inline void for_columns(std::int64_t width, bool packed, Body&& body) {
  const std::int64_t thread = threadIdx.x;
  const std::int64_t threads = blockDim.x;
  if (packed) {
    for (std::int64_t i = thread * kPack<T>; i < width; i += threads * kPack<T>)
      body(i, Lanes<kPack<T>>{});
  } else {
    for (std::int64_t i = thread; i < width; i += threads) body(i, Lanes<1>{});
  }
}

struct Sum {
  static float identity() { return 0; }

  static float combine(float a, float b) { return a + b; }
};

struct Max {
  static float identity() { return __uint_as_float(0xff800000U); }  // minus infinity

  static float combine(float a, float b) { return a > b || a != a ? a : b; }  // keeps NaN
};

/// Combines the values of `lanes` neighbouring threads, a power of two up to 32. All threads of the
/// warp must call it, and all get the result of their group.
template <class Operation>
inline float combine_lanes(float x, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    x = Operation::combine(x, __shfl_xor_sync(0xffffffffU, x, distance));
  return x;
}

/// Combines the values of all threads of the block, always in one order. All threads must call it,
/// and all get the result. The number of threads must be a multiple of 32, at most 1024.
template <class Operation>
inline float combine_block(float x) {
  __shared__ float parts[32];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  x = combine_lanes<Operation>(x, 32);
  if (warps == 1) return x;
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  x = combine_lanes<Operation>(lane < warps ? parts[lane] : Operation::identity(), 32);
  __syncthreads();  // the next call writes `parts`
  return x;
}

inline float block_sum(float x) {
  return combine_block<Sum>(x);
}

inline float block_max(float x) {
  return combine_block<Max>(x);
}

/// Returns the dynamic shared memory of the block: Launch::shared_bytes bytes, not initialized.
template <class T>
inline T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char block_memory[];
  return reinterpret_cast<T*>(block_memory);
#else
  return static_cast<T*>(host_dynamic_shared());
#endif
}

}  // namespace trireme::ops::cuda
