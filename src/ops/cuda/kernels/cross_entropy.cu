#include "ops/cuda/kernels/block.cuh"
#include "ops/cuda/kernels/cross_entropy.hpp"

namespace trireme::ops::cuda {

struct SoftmaxSums {
  float largest;
  float sum;  // sum of exp(logit - largest)
};

/// Reads the row once. All threads of the block must call it, and all get the result.
template <class T>
inline SoftmaxSums softmax_sums(const T* logits, std::int64_t width) {
  const float minus_infinity = Max::identity();
  float largest = minus_infinity;
  float sum = 0;
  for_columns<T>(width, is_packed<T>(width, logits), [&](std::int64_t i, auto lanes) {
    constexpr int n = decltype(lanes)::count;
    const Floats<n> value = load<n>(logits + i);
    float most = value[0];
    for (int j = 1; j < n; ++j) most = Max::combine(most, value[j]);
    if (most > largest) {
      sum *= expf(largest - most);
      largest = most;
    }
    for (int j = 0; j < n; ++j) {
      if (!(value[j] == minus_infinity)) sum += expf(value[j] - largest);
    }
  });
  const float of_all = block_max(largest);
  return {of_all, block_sum(largest == minus_infinity ? sum : sum * expf(largest - of_all))};
}

/// Overwrites the row with factor * (softmax - one at `target`). A factor of 0 gives zeros.
template <class T>
inline void put_gradient(T* logits, std::int64_t width, std::int64_t target,
                         const SoftmaxSums& sums, float factor) {
  const float scale = factor / sums.sum;
  for_columns<T>(width, is_packed<T>(width, logits), [&](std::int64_t i, auto lanes) {
    constexpr int n = decltype(lanes)::count;
    Floats<n> grad{};
    if (factor != 0) {
      grad = load<n>(logits + i);
      for (int j = 0; j < n; ++j) {
        grad[j] = expf(grad[j] - sums.largest) * scale;
        if (i + j == target) grad[j] -= factor;
      }
    }
    store(logits + i, grad);
  });
}

/// Returns the factor of the gradient of this block's row.
template <class Arguments>
inline float row_factor(const Arguments& a) {
  if (a.targets[blockIdx.x] < 0) return 0;
  const float scale =
      a.device_grad_scale == nullptr ? a.grad_scale : static_cast<float>(*a.device_grad_scale);
  return a.row_weights == nullptr ? scale : scale * a.row_weights[blockIdx.x];
}

template <class T>
void cross_entropy(const CrossEntropy& a) {
  T* logits = typed<T>(a.logits) + blockIdx.x * a.width;
  const std::int64_t target = a.targets[blockIdx.x];
  SoftmaxSums sums{0, 1};
  if (target >= 0) {  // all threads of the block take this branch together
    sums = softmax_sums(logits, a.width);
    if (threadIdx.x == 0)
      a.losses[blockIdx.x] = logf(sums.sum) + (sums.largest - widen(logits[target]));
    __syncthreads();  // the gradient overwrites the target's logit
  } else if (threadIdx.x == 0) {
    a.losses[blockIdx.x] = 0;
  }
  if (!a.want_grads) return;
  put_gradient(logits, a.width, target, sums, row_factor(a));
}

template <class T>
void class_statistics(const ClassStatistics& a) {
  const T* logits = typed<T>(a.logits) + blockIdx.x * a.width;
  const SoftmaxSums sums = softmax_sums(logits, a.width);
  if (threadIdx.x != 0) return;
  const std::int64_t target = a.targets[blockIdx.x] - a.first;
  a.largest[blockIdx.x] = sums.largest;
  a.sums[blockIdx.x] = sums.sum;
  a.target_logits[blockIdx.x] = target >= 0 && target < a.width ? widen(logits[target]) : 0;
}

template <class T>
void class_gradient(const ClassGradient& a) {
  put_gradient(typed<T>(a.logits) + blockIdx.x * a.width, a.width, a.targets[blockIdx.x] - a.first,
               {a.largest[blockIdx.x], a.sums[blockIdx.x]}, row_factor(a));
}

}  // namespace trireme::ops::cuda
