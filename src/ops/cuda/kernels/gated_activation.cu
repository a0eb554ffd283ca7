#include "ops/activations.hpp"
#include "ops/cuda/kernels/block.cuh"
#include "ops/cuda/kernels/gated_activation.hpp"

namespace trireme::ops::cuda {

/// The arithmetic of ops/activations.hpp on one value. NaN is preserved.
struct ValueMath {
  using Number = float;

  static float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

  static float silu(float x) { return x * sigmoid(x); }

  static float relu(float x) { return x < 0 ? 0 : x; }

  static float clamp(float x, float most) { return x > most ? most : x < -most ? -most : x; }
};

template <class T>
void gated_forward(const GatedForward& a) {
  const T* gate = typed<T>(a.gate_up) + blockIdx.x * a.stride;
  const T* up = gate + a.width;
  T* y = typed<T>(a.y) + blockIdx.x * a.width;
  const bool packed = is_packed<T>(a.width, gate, up, y);
  Activations::pick(a.activation, [&](auto row) {
    using Row = decltype(row);
    for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
      constexpr int n = decltype(lanes)::count;
      const Floats<n> gates = load<n>(gate + i);
      const Floats<n> ups = load<n>(up + i);
      Floats<n> result;
      for (int j = 0; j < n; ++j) result[j] = Row::template forward<ValueMath>(gates[j], ups[j]);
      store(y + i, result);
    });
  });
}

template <class T>
void gated_backward(const GatedBackward& a) {
  const T* gate = typed<T>(a.gate_up) + blockIdx.x * a.stride;
  const T* up = gate + a.width;
  const T* grad_y = typed<T>(a.grad_y) + blockIdx.x * a.width;
  T* grad_gate = typed<T>(a.grad_gate_up) + blockIdx.x * 2 * a.width;
  T* grad_up = grad_gate + a.width;
  T* y = a.y == nullptr ? nullptr : typed<T>(a.y) + blockIdx.x * a.width;
  const bool packed = is_packed<T>(a.width, gate, up, grad_y, grad_gate, grad_up, y);
  Activations::pick(a.activation, [&](auto row) {
    using Row = decltype(row);
    for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
      constexpr int n = decltype(lanes)::count;
      const Floats<n> gates = load<n>(gate + i);
      const Floats<n> ups = load<n>(up + i);
      const Floats<n> incoming = load<n>(grad_y + i);
      Floats<n> gate_grads;
      Floats<n> up_grads;
      for (int j = 0; j < n; ++j) {
        const GatedGrads<float> grads =
            Row::template backward<ValueMath>(gates[j], ups[j], incoming[j]);
        gate_grads[j] = grads.gate;
        up_grads[j] = grads.up;
      }
      store(grad_gate + i, gate_grads);
      store(grad_up + i, up_grads);
      if (y == nullptr) return;
      Floats<n> result;
      for (int j = 0; j < n; ++j) result[j] = Row::template forward<ValueMath>(gates[j], ups[j]);
      store(y + i, result);
    });
  });
}

}  // namespace trireme::ops::cuda
