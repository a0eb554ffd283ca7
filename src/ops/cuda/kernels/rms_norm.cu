#include "ops/cuda/kernels/block.cuh"
#include "ops/cuda/kernels/rms_norm.hpp"

namespace trireme::ops::cuda {

/// Normalizes one row per block.
template <class T>
void rms_norm_forward(const RmsNormForward& a) {
  const std::int64_t first = blockIdx.x * a.width;
  const T* x = typed<T>(a.x) + first;
  const T* residual = a.residual == nullptr ? nullptr : typed<T>(a.residual) + first;
  const T* weight = typed<T>(a.weight);
  T* sum = residual == nullptr ? nullptr : typed<T>(a.sum) + first;
  T* y = typed<T>(a.y) + first;
  const bool packed = is_packed<T>(a.width, x, residual, weight, sum, y);
  float squares = 0;
  for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
    constexpr int n = decltype(lanes)::count;
    Floats<n> value = load<n>(x + i);
    if (residual != nullptr) {
      const Floats<n> other = load<n>(residual + i);
      for (int j = 0; j < n; ++j) value[j] = rounded<T>(value[j] + other[j]);
      store(sum + i, value);
    }
    for (int j = 0; j < n; ++j) squares += value[j] * value[j];
  });
  const float mean = block_sum(squares) / static_cast<float>(a.width);
  const float rstd = rsqrtf(mean + a.eps);
  if (threadIdx.x == 0) a.rstd[blockIdx.x] = rstd;
  const T* values = residual == nullptr ? x : sum;  // a thread reads what the thread itself wrote
  for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
    constexpr int n = decltype(lanes)::count;
    Floats<n> value = load<n>(values + i);
    const Floats<n> scale = load<n>(weight + i);
    for (int j = 0; j < n; ++j) value[j] *= rstd * scale[j];
    store(y + i, value);
  });
}

/// Computes the gradients of rows_per_block consecutive rows per block.
template <class T>
void rms_norm_backward(const RmsNormBackward& a) {
  const T* weight = typed<T>(a.weight);
  float* partial = a.partial + blockIdx.x * a.width;
  float* sums = a.has_shared_sums ? dynamic_shared<float>() : partial;
  const bool packed =
      is_packed<T>(a.width, a.grad_y, a.grad_sum, a.x, a.weight, a.grad_x, a.y, a.partial);
  for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
    store(sums + i, Floats<decltype(lanes)::count>{});
  });
  const std::int64_t begin = blockIdx.x * a.rows_per_block;
  const std::int64_t end = begin + a.rows_per_block < a.rows ? begin + a.rows_per_block : a.rows;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* grad_y = typed<T>(a.grad_y) + row * a.width;
    const T* grad_sum = a.grad_sum == nullptr ? nullptr : typed<T>(a.grad_sum) + row * a.width;
    const T* x = typed<T>(a.x) + row * a.width;
    T* grad_x = typed<T>(a.grad_x) + row * a.width;
    T* y = a.y == nullptr ? nullptr : typed<T>(a.y) + row * a.width;
    const float rstd = a.rstd[row];
    float products = 0;
    for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
      constexpr int n = decltype(lanes)::count;
      const Floats<n> incoming = load<n>(grad_y + i);
      const Floats<n> scale = load<n>(weight + i);
      const Floats<n> value = load<n>(x + i);
      for (int j = 0; j < n; ++j) products += incoming[j] * scale[j] * value[j];
    });
    const float along = block_sum(products) * rstd / static_cast<float>(a.width);
    for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
      constexpr int n = decltype(lanes)::count;
      const Floats<n> incoming = load<n>(grad_y + i);
      const Floats<n> scale = load<n>(weight + i);
      Floats<n> value = load<n>(x + i);
      Floats<n> total = load<n>(sums + i);
      Floats<n> grad;
      for (int j = 0; j < n; ++j) {
        const float normed = value[j] * rstd;
        grad[j] = (incoming[j] * scale[j] - normed * along) * rstd;
        total[j] += incoming[j] * normed;
        value[j] *= rstd * scale[j];
      }
      if (grad_sum != nullptr) {
        const Floats<n> other = load<n>(grad_sum + i);
        for (int j = 0; j < n; ++j) grad[j] += other[j];
      }
      store(grad_x + i, grad);
      store(sums + i, total);
      if (y != nullptr) store(y + i, value);
    });
  }
  if (!a.has_shared_sums) return;
  for_columns<T>(a.width, packed, [&](std::int64_t i, auto lanes) {
    store(partial + i, load<decltype(lanes)::count>(sums + i));
  });
}

}  // namespace trireme::ops::cuda
