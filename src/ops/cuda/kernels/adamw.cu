#include "ops/cuda/kernels/adamw.hpp"
#include "ops/cuda/kernels/block.cuh"

namespace trireme::ops::cuda {

/// Updates N elements from element i on.
template <int N, class T>
inline void update_elements(const AdamWUpdate& a, const AdamWPiece& piece, float factor,
                            std::int64_t i) {
  const Floats<N> grad = load<N>(piece.grads + i);
  Floats<N> weight = load<N>(piece.weights + i);
  Floats<N> first = load<N>(piece.exp_avg + i);
  Floats<N> second = load<N>(piece.exp_avg_sq + i);
  for (int j = 0; j < N; ++j) {
    const float g = grad[j] * factor;
    first[j] += a.rate1 * (g - first[j]);
    second[j] += a.rate2 * (g * g - second[j]);
    const float root = sqrtf(second[j]) * a.inverse_root + a.eps;
    weight[j] = weight[j] * piece.keep - a.step_size * first[j] / root;
  }
  store(piece.weights + i, weight);
  store(piece.exp_avg + i, first);
  store(piece.exp_avg_sq + i, second);
  if (piece.copy != nullptr) store(typed<T>(piece.copy) + i, weight);
}

/// Clips the gradients, updates weights and moments, and writes the rounded weights. A block has
/// kAdamWBlock elements of one piece.
template <class T>
void adamw(const AdamWUpdate& a) {
  const float factor = *a.factor;
  if (!(factor - factor == 0)) return;  // not finite
  int index = 0;
  while (index + 1 < a.num_pieces && blockIdx.x >= a.pieces[index + 1].first_block) ++index;
  const AdamWPiece& piece = a.pieces[index];
  const std::int64_t begin = (blockIdx.x - piece.first_block) * kAdamWBlock;
  const std::int64_t wanted = begin + kAdamWBlock;
  const std::int64_t end = wanted < piece.count ? wanted : piece.count;
  constexpr int n = 4;
  const bool packed =
      is_packed<float>(n, piece.weights, piece.grads, piece.exp_avg, piece.exp_avg_sq) &&
      reinterpret_cast<std::uintptr_t>(piece.copy) % sizeof(Pack<T, n>) == 0;
  const std::int64_t step = std::int64_t{n} * blockDim.x;
  for (std::int64_t i = begin + std::int64_t{n} * threadIdx.x; i < end; i += step) {
    if (packed && i + n <= end) {
      update_elements<n, T>(a, piece, factor, i);
    } else {
      for (std::int64_t j = i; j < end && j < i + n; ++j)
        update_elements<1, T>(a, piece, factor, j);
    }
  }
}

}  // namespace trireme::ops::cuda
