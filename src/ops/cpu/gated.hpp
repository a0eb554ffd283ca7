#pragma once
#include "ops/activations.hpp"
#include "ops/cpu/rows.hpp"

/// Kernels of the gated activations. Included once by every instruction set's file.
namespace trireme::ops::kernels {
namespace {

/// Arithmetic of ops/activations.hpp on vector lanes. What is not a number stays so.
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
      for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
        const auto grads = decltype(row)::template backward<LaneMath>(
            get(gate, i, n), get(up, i, n), get(grad_y, i, n));
        put(grad_gate, i, n, grads.gate);
        put(grad_up, i, n, grads.up);
      });
    }
  });
}

}  // namespace
}  // namespace trireme::ops::kernels
