#pragma once
#include "ops/cpu/adamw.hpp"
#include "ops/cpu/fixed_linear.hpp"
#include "ops/cpu/heads.hpp"
#include "ops/cpu/int8_linear.hpp"
#include "ops/cpu/linear.hpp"
#include "ops/cpu/paged.hpp"
#include "ops/cpu/panel_products.hpp"
#include "ops/cpu/rows.hpp"
#include "ops/cpu/scores.hpp"

/// Fills the table TRIREME_KERNEL_TABLE with the kernels as compiled with this file's flags.
namespace trireme::ops::kernels {
namespace {

// Multiply-adds between registers only: the peak to which CPU MFU relates.
#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif
/// Number of independent sums. Two units with a latency of four cycles keep eight in flight; with
/// two factors they fit into 16 registers.
constexpr int kSums = 10;
/// Products of pairs have a longer latency (10 sums reach 85 % of the peak on AMD family 26), and
/// the machines that have them have 32 registers.
[[maybe_unused]] constexpr int kPairSums = 24;

template <class T>
struct Register {
  using Type [[gnu::vector_size(kRegisterBytes)]] = T;
};

/// Computes sum = sum * a + b, which stays finite. Compiles to one FMA instruction if available.
template <class T>
double multiply_adds_typed(std::int64_t rounds) {
  using R = typename Register<T>::Type;
  R sums[kSums];
  for (int k = 0; k < kSums; ++k) sums[k] = static_cast<T>(k) - R{};
  R a = static_cast<T>(0.5) - R{};
  R b = static_cast<T>(1) - R{};
#ifdef TRIREME_X86_KERNELS
  __asm__ volatile("" : "+x"(a), "+x"(b));  // prevents evaluation at compile time
#endif
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 10
    for (int k = 0; k < kSums; ++k) sums[k] = sums[k] * a + b;
  }
  R all = sums[0];
  for (int k = 1; k < kSums; ++k) all += sums[k];
  volatile T used = all[0];  // prevents removal of the sums
  static_cast<void>(used);
  return 2.0 * static_cast<double>(rounds) * kSums * (kRegisterBytes / sizeof(T));
}

double multiply_pairs(std::int64_t rounds) {
#ifdef __AVX512BF16__
  __m512 sums[kPairSums];
  for (int k = 0; k < kPairSums; ++k) sums[k] = _mm512_set1_ps(static_cast<float>(k));
  __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f003f00);  // pairs of 0.5
  __asm__ volatile("" : "+x"(a));
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int k = 0; k < kPairSums; ++k) sums[k] = _mm512_dpbf16_ps(sums[k], a, a);
  }
  __m512 all = sums[0];
  for (int k = 1; k < kPairSums; ++k) all += sums[k];
  volatile float used = all[0];
  static_cast<void>(used);
  return 4.0 * static_cast<double>(rounds) * kPairSums * kLanes;
#else
  return 0 * static_cast<double>(rounds);
#endif
}

double multiply_adds(Multiply what, std::int64_t rounds) {
  if (what == Multiply::f64) return multiply_adds_typed<double>(rounds);
  if (what == Multiply::f32) return multiply_adds_typed<float>(rounds);
  return multiply_pairs(rounds);
}

#define TRIREME_BY_ELEMENT(function, Arguments) \
  void function(const Arguments& arguments) {   \
    if (arguments.element == Element::f32) {    \
      function##_typed<float>(arguments);       \
    } else {                                    \
      function##_typed<Bf16>(arguments);        \
    }                                           \
  }

TRIREME_BY_ELEMENT(rms_forward, RmsForward)
TRIREME_BY_ELEMENT(rms_backward, RmsBackward)
TRIREME_BY_ELEMENT(gated_forward, Gated)
TRIREME_BY_ELEMENT(gated_backward, Gated)
TRIREME_BY_ELEMENT(heads_forward, Heads)
TRIREME_BY_ELEMENT(heads_backward, Heads)
TRIREME_BY_ELEMENT(cross_entropy, CrossEntropy)
TRIREME_BY_ELEMENT(dropout, Dropout)
TRIREME_BY_ELEMENT(linear_rows, LinearRows)
TRIREME_BY_ELEMENT(spread_rows, SpreadRows)
TRIREME_BY_ELEMENT(paged_attention, PagedAttention)
TRIREME_BY_ELEMENT(paged_store, PagedStore)
#undef TRIREME_BY_ELEMENT

}  // namespace

extern const Table TRIREME_KERNEL_TABLE;
const Table TRIREME_KERNEL_TABLE = {TRIREME_KERNEL_NAME,
                                    rms_forward,
                                    rms_backward,
                                    gated_forward,
                                    gated_backward,
                                    heads_forward,
                                    heads_backward,
                                    cross_entropy,
                                    dropout,
                                    adamw,
                                    softmax_tile<std::uint16_t>,
                                    softmax_tile<float>,
                                    softmax_tile_backward<std::uint16_t>,
                                    softmax_tile_backward<float>,
                                    pack_pairs,
                                    transpose,
                                    round_rows,
                                    row_products<std::uint16_t>,
                                    row_products<float>,
                                    linear_rows,
                                    int8_linear_rows,
                                    kFixRows,
                                    kFixedLinearRows,
                                    spread_rows,
                                    kPackPanels,
                                    kPanelProducts,
                                    kMultipliesPairs,
                                    paged_attention,
                                    paged_store,
                                    multiply_adds};

}  // namespace trireme::ops::kernels
