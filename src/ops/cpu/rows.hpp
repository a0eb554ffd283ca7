#pragma once
#include "ops/activations.hpp"
#include "ops/cpu/kernels.hpp"
#include "ops/cpu/simd.hpp"

/// Row-wise kernels: norm, gated activations, cross entropy. Included once per instruction set.
namespace trireme::ops::kernels {
namespace {

template <class T>
const T* typed(const void* p) {
  return static_cast<const T*>(p);
}

template <class T>
T* typed(void* p) {
  return static_cast<T*>(p);
}

/// Calls body(first, count) for every vector of a row; the last one may be partial.
template <class Body>
inline void for_vectors(std::int64_t width, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) body(i, kLanes);
  if (i < width) body(i, width - i);
}

template <class T>
inline F get(const T* row, std::int64_t i, std::int64_t n) {
  return n == kLanes ? load(row + i) : load_some(row + i, n);
}

template <class T>
inline void put(T* row, std::int64_t i, std::int64_t n, F x) {
  if (n == kLanes) {
    store(row + i, x);
  } else {
    store_some(row + i, x, n);
  }
}

template <class T>
void rms_forward_typed(const RmsForward& a) {
  const T* weight = typed<T>(a.weight);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = typed<T>(a.x) + r * a.width;
    T* y = typed<T>(a.y) + r * a.width;
    F squares{};
    if (a.residual != nullptr) {
      const T* residual = typed<T>(a.residual) + r * a.width;
      T* sum = typed<T>(a.sum) + r * a.width;
      for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
        put(sum, i, n, get(x, i, n) + get(residual, i, n));
        const F rounded = get<T>(sum, i, n);
        squares += rounded * rounded;
      });
      x = sum;
    } else {
      for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
        const F value = get(x, i, n);
        squares += value * value;
      });
    }
    const float mean = sum_lanes(squares) / static_cast<float>(a.width);
    const float rstd = 1.0F / __builtin_sqrtf(mean + a.eps);
    a.rstd[r] = rstd;
    for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
      put(y, i, n, get(x, i, n) * rstd * get(weight, i, n));
    });
  }
}

template <class T>
void rms_backward_typed(const RmsBackward& a) {
  const T* weight = typed<T>(a.weight);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = typed<T>(a.x) + r * a.width;
    const T* grad_y = typed<T>(a.grad_y) + r * a.width;
    const T* grad_sum = a.grad_sum == nullptr ? nullptr : typed<T>(a.grad_sum) + r * a.width;
    T* grad_x = typed<T>(a.grad_x) + r * a.width;
    T* y = a.y == nullptr ? nullptr : typed<T>(a.y) + r * a.width;
    const float rstd = a.rstd[r];
    F products{};
    for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
      products += get(grad_y, i, n) * get(weight, i, n) * get(x, i, n);
    });
    const float along = sum_lanes(products) * rstd / static_cast<float>(a.width);
    for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
      const F normed = get(x, i, n) * rstd;
      const F incoming = get(grad_y, i, n);
      const F scale = get(weight, i, n);
      F grad = (incoming * scale - normed * along) * rstd;
      if (grad_sum != nullptr) grad += get(grad_sum, i, n);
      put(grad_x, i, n, grad);
      put(a.grad_weight, i, n, get<float>(a.grad_weight, i, n) + incoming * normed);
      if (y != nullptr) put(y, i, n, normed * scale);
    });
  }
}

/// The arithmetic of ops/activations.hpp on vector lanes. NaN is preserved.
struct LaneMath {
  using Number = float;

  static F sigmoid(F x) { return 1.0F / (1.0F + exp2_lanes(x * -kLog2e)); }

  static F silu(F x) { return x * sigmoid(x); }

  static F relu(F x) { return larger(F{}, x); }

  static F clamp(F x, float most) { return smaller(splat(most), larger(splat(-most), x)); }
};

template <class T>
void gated_forward_typed(const Gated& a) {
  Activations::pick(a.activation, [&](auto row) {
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const T* gate = typed<T>(a.gate_up) + r * a.stride;
      const T* up = gate + a.width;
      T* y = typed<T>(a.y) + r * a.width;
      for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
        put(y, i, n, decltype(row)::template forward<LaneMath>(get(gate, i, n), get(up, i, n)));
      });
    }
  });
}

template <class T>
void gated_backward_typed(const Gated& a) {
  Activations::pick(a.activation, [&](auto row) {
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const T* gate = typed<T>(a.gate_up) + r * a.stride;
      const T* up = gate + a.width;
      const T* grad_y = typed<T>(a.grad_y) + r * a.width;
      T* grad_gate = typed<T>(a.grad_gate_up) + r * 2 * a.width;
      T* grad_up = grad_gate + a.width;
      T* y = a.y == nullptr ? nullptr : typed<T>(a.y) + r * a.width;
      for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
        const F g = get(gate, i, n);
        const F u = get(up, i, n);
        const auto grads = decltype(row)::template backward<LaneMath>(g, u, get(grad_y, i, n));
        put(grad_gate, i, n, grads.gate);
        put(grad_up, i, n, grads.up);
        if (y != nullptr) put(y, i, n, decltype(row)::template forward<LaneMath>(g, u));
      });
    }
  });
}

/// Returns ln of a positive number, in fp64, from its exponent and a series in (m - 1) / (m + 1).
inline double log_positive(double x) {
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  auto exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
  double mantissa = 0;
  __builtin_memcpy(&mantissa, &bits, sizeof(mantissa));
  if (mantissa > 1.4142135623730951) {
    mantissa /= 2;
    ++exponent;
  }
  const double z = (mantissa - 1) / (mantissa + 1);
  double sum = 0;
  for (int k = 19; k > 0; k -= 2) sum = sum * z * z + 1.0 / k;
  return 2 * z * sum + static_cast<double>(exponent) * 0.6931471805599453;
}

template <class T>
void cross_entropy_typed(const CrossEntropy& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    T* logits = typed<T>(a.logits) + r * a.width;
    const std::int64_t target = a.targets[r];
    a.losses[r] = 0;
    if (target < 0) {
      if (a.want_grads) __builtin_memset(logits, 0, static_cast<std::size_t>(a.width) * sizeof(T));
      continue;
    }
    F best = splat(-__builtin_huge_valf());
    float tail_best = -__builtin_huge_valf();
    std::int64_t i = 0;
    for (; i + kLanes <= a.width; i += kLanes) best = larger(load(logits + i), best);
    for (; i < a.width; ++i) {
      const T one[kLanes] = {logits[i]};
      tail_best = load(one)[0] > tail_best ? load(one)[0] : tail_best;
    }
    const float lanes_best = max_lanes(best);
    const float maximum = lanes_best > tail_best ? lanes_best : tail_best;
    F total{};
    double tail_total = 0;
    for_vectors(a.width, [&](std::int64_t k, std::int64_t n) {
      const F weight = exp2_lanes((get<T>(logits, k, n) - maximum) * kLog2e);
      put(a.scratch, k, n, weight);
      if (n == kLanes) {
        total += weight;
      } else {
        for (std::int64_t lane = 0; lane < n; ++lane) tail_total += weight[lane];
      }
    });
    const double sum = static_cast<double>(sum_lanes(total)) + tail_total;
    const T picked[kLanes] = {logits[target]};
    a.losses[r] = log_positive(sum) - static_cast<double>(load(picked)[0] - maximum);
    if (!a.want_grads) continue;
    const float scale = a.row_weights == nullptr ? a.grad_scale : a.grad_scale * a.row_weights[r];
    const float factor = scale / static_cast<float>(sum);
    const float at_target = a.scratch[target] * factor - scale;
    for_vectors(a.width, [&](std::int64_t k, std::int64_t n) {
      put(logits, k, n, get<float>(a.scratch, k, n) * factor);
    });
    store_some(logits + target, splat(at_target), 1);
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
