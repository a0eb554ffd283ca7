#pragma once
#include "ops/cpu/rows.hpp"

/// AdamW in one pass: reads gradient, weight and both averages once. Included once per instruction
/// set.
namespace trireme::ops::kernels {
namespace {

inline F roots(F x) {
#if defined(__AVX512F__)
  return (F)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);  // without a mask, g++ 12 warns
#else
  F all;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) all[lane] = __builtin_sqrtf(x[lane]);
  return all;
#endif
}

template <class T>
void adamw_typed(const AdamW& a) {
  T* const copy = typed<T>(a.copy);
  const auto update = [&](std::int64_t i, std::int64_t n) {
    const F grad = get(a.grads, i, n) * a.factor;
    F first = get(a.exp_avg, i, n);
    F second = get(a.exp_avg_sq, i, n);
    first += a.rate1 * (grad - first);
    second += a.rate2 * (grad * grad - second);
    const F root = roots(second) * a.inverse_root + a.eps;
    const F weight = get(a.weights, i, n) * a.keep - a.step_size * first / root;
    put(a.exp_avg, i, n, first);
    put(a.exp_avg_sq, i, n, second);
    put(a.weights, i, n, weight);
    if (copy != nullptr) put(copy, i, n, weight);
  };
  for_vectors(a.last - a.first, [&](std::int64_t i, std::int64_t n) { update(a.first + i, n); });
}

void adamw(const AdamW& a) {
  if (a.copy_element == Element::f32) {
    adamw_typed<float>(a);
  } else {
    adamw_typed<Bf16>(a);
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
