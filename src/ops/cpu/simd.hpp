#pragma once
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <cstdint>

/// Vectors of 16 fp32 lanes in the compiler's vector types: the same source compiles to 512-, 256-
/// or 128-bit code. Everything is in an unnamed namespace and no inline function of another header
/// is used. Object files of different instruction sets must not share symbols, or the linker could
/// keep a version that the machine cannot run.
namespace trireme::ops::kernels {
namespace {

constexpr std::int64_t kLanes = 16;
using F = float __attribute__((vector_size(64)));
using U = std::uint32_t __attribute__((vector_size(64)));
using I = std::int32_t __attribute__((vector_size(64)));
using Half = std::uint16_t __attribute__((vector_size(32)));
using Wide = std::uint64_t __attribute__((vector_size(128)));

using Bf16 = std::uint16_t;

inline F splat(float x) {
  return x - F{};
}

inline F widen(Half bits) {
  return (F)(__builtin_convertvector(bits, U) << 16);
}

#ifdef __AVX512F__
constexpr std::int64_t kWide = 16;
#else
constexpr std::int64_t kWide = 8;
#endif
using V = float __attribute__((vector_size(kWide * sizeof(float))));
using WideU = std::uint32_t __attribute__((vector_size(kWide * sizeof(std::uint32_t))));
using WideHalf = std::uint16_t __attribute__((vector_size(kWide * sizeof(std::uint16_t))));
/// True if sequential memory is prefetched by software. Measured: AMD with AVX-512 bf16 (Zen 4) is
/// faster without it; AMD with AVX2 (Zen 3) and Intel with AVX-512 (model 207) are faster with it.
#ifdef __AVX512BF16__
constexpr bool kFetchInOrder = false;
#else
constexpr bool kFetchInOrder = true;
#endif
/// Registers per 16 lanes. g++ 12 compares wider vectors lane by lane.
constexpr int kParts = kLanes / kWide;

template <class Choose>
inline F choose_by_parts(const F& a, const F& b, Choose choose) {
  V left[kParts];
  V right[kParts];
  __builtin_memcpy(left, &a, sizeof(a));
  __builtin_memcpy(right, &b, sizeof(b));
  for (int i = 0; i < kParts; ++i) left[i] = choose(left[i], right[i]);
  F all;
  __builtin_memcpy(&all, left, sizeof(all));
  return all;
}

/// Rounds to nearest even and keeps NaN. The instruction treats denormals as zero.
inline Half narrow(F x) {
#ifdef __AVX512BF16__
  return (Half)_mm512_cvtneps_pbh((__m512)x);
#else
  V parts[kParts];
  WideHalf halves[kParts];
  __builtin_memcpy(parts, &x, sizeof(x));
  for (int i = 0; i < kParts; ++i) {
    const WideU bits = (WideU)parts[i];
    const WideU rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const WideU quiet = (bits >> 16) | 0x40U;
    halves[i] = __builtin_convertvector(parts[i] == parts[i] ? rounded : quiet, WideHalf);
  }
  Half all;
  __builtin_memcpy(&all, halves, sizeof(all));
  return all;
#endif
}

inline F load(const float* p) {
  F x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}

inline F load(const Bf16* p) {
  Half bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return widen(bits);
}

inline void store(float* p, F x) {
  __builtin_memcpy(p, &x, sizeof(x));
}

inline void store(Bf16* p, F x) {
  const Half bits = narrow(x);
  __builtin_memcpy(p, &bits, sizeof(bits));
}

/// Loads the first n lanes and sets the others to zero.
template <class T>
inline F load_some(const T* p, std::int64_t n) {
  T lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, static_cast<std::size_t>(n) * sizeof(T));
  return load(lanes);
}

template <class T>
inline void store_some(T* p, F x, std::int64_t n) {
  T lanes[kLanes];
  store(lanes, x);
  __builtin_memcpy(p, lanes, static_cast<std::size_t>(n) * sizeof(T));
}

/// Returns a > b ? a : b, which is b if either is NaN.
inline F larger(F a, F b) {
  return choose_by_parts(a, b, [](V x, V y) { return x > y ? x : y; });
}

/// Returns a < b ? a : b, which is b if either is NaN.
inline F smaller(F a, F b) {
  return choose_by_parts(a, b, [](V x, V y) { return x < y ? x : y; });
}

/// Sums the lanes in the same order for every instruction set.
inline float sum_lanes(F x) {
  float lanes[kLanes];
  store(lanes, x);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

inline float max_lanes(F x) {
  float lanes[kLanes];
  store(lanes, x);
  float best = lanes[0];
  for (int i = 1; i < kLanes; ++i) best = lanes[i] > best ? lanes[i] : best;
  return best;
}

/// Returns 2^x with a relative error below 2e-7: 0 below -126 (no denormals), infinity from 128,
/// NaN or infinity for NaN. Taylor series of 2^f on [-1/2, 1/2], degree 7.
[[gnu::always_inline]] inline F exp2_lanes(F x) {
  const F low = splat(-127.0F);
  const F high = splat(128.0F);
  const F clamped = smaller(high, larger(low, x));
  const F shifted = clamped + splat(12582912.0F);  // 1.5 * 2^23: rounds to nearest
  const I whole = (I)shifted - (I)splat(12582912.0F);
  const F f = clamped - (shifted - splat(12582912.0F));
  F sum = splat(1.5252734e-5F);
  sum = sum * f + splat(1.5403530e-4F);
  sum = sum * f + splat(1.3333558e-3F);
  sum = sum * f + splat(9.6181291e-3F);
  sum = sum * f + splat(5.5504109e-2F);
  sum = sum * f + splat(2.4022651e-1F);
  sum = sum * f + splat(6.9314718e-1F);
  sum = sum * f + splat(1.0F);
  const F power = (F)((whole + 127) << 23);  // whole = -127 gives 0, 128 gives infinity
  return sum * power;
}

/// Returns 2^x for x < 127, relative error below 3e-6: enough for bf16 results. Degree 5.
inline F exp2_rough_lanes(F x) {
  const F low = splat(-127.0F);
  const F magic = splat(12582912.0F);
  const F clamped = larger(low, x);
  const F shifted = clamped + magic;
  const F f = clamped - (shifted - magic);
  F sum = splat(1.3333558e-3F);
  sum = sum * f + splat(9.6181291e-3F);
  sum = sum * f + splat(5.5504109e-2F);
  sum = sum * f + splat(2.4022651e-1F);
  sum = sum * f + splat(6.9314718e-1F);
  sum = sum * f + splat(1.0F);
  return sum * (F)(((I)shifted - (I)magic + 127) << 23);
}

constexpr float kLog2e = 1.44269504F;

}  // namespace
}  // namespace trireme::ops::kernels
