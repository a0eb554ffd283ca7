#include "core/exact_words.hpp"
#include "ops/cuda/kernels/block.cuh"
#include "ops/cuda/kernels/grad_norm.hpp"

/// The gradient norm. Sums of squares are exact sums of integers (core/exact_sum.hpp), so they do
/// not depend on the order.
namespace trireme::ops::cuda {

static_assert(kSumWords == kExactWords + 1);

/// Writes the exact sum of tiles_per_block tiles. The dynamic shared memory has the words of each
/// thread and then one tile.
template <class T>
void block_squares(const BlockSquares& a) {
  auto* all_words = dynamic_shared<std::int64_t>();
  auto* tile = reinterpret_cast<T*>(all_words + kSumWords * kSquaresThreads);
  const int thread = static_cast<int>(threadIdx.x);
  std::int64_t* words = all_words + thread;  // word w is words[w * kSquaresThreads]
  for (int word = 0; word < kSumWords; ++word) words[word * kSquaresThreads] = 0;
  const std::int64_t begin = blockIdx.x * a.tiles_per_block;
  const std::int64_t wanted = begin + a.tiles_per_block;
  const std::int64_t end = wanted < a.tiles ? wanted : a.tiles;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t first = i * kSquaresThreads * kSquaresWidth - a.before;
#pragma unroll 16
    for (int row = 0; row < kSquaresThreads; ++row) {
      const std::int64_t element = first + row * kSquaresWidth + thread;
      const bool exists = element >= 0 && element < a.count;
      tile[row * kSquaresPitch + thread] = exists ? a.grads[element] : 0;
    }
    __syncthreads();
    // The order of optim/block_squares.cpp. Squares of fp32 values are exact in fp64.
    double lanes[8] = {};
    for (int j = 0; j < kSquaresWidth; j += 8) {
      for (int lane = 0; lane < 8; ++lane) {
        const double value = tile[thread * kSquaresPitch + j + lane];
        lanes[lane] += value * value;
      }
    }
    double sum = 0;
    for (int lane = 0; lane < 8; ++lane) sum += lanes[lane];
    add_exactly(bits_of(sum),
                [&](int word, std::int64_t digits) { words[word * kSquaresThreads] += digits; });
    __syncthreads();  // the next tile overwrites this one
  }
  __syncthreads();
  for (int word = thread; word < kSumWords; word += kSquaresThreads) {
    std::int64_t sum = 0;
    for (int i = 0; i < kSquaresThreads; ++i)  // each thread begins in another bank
      sum += all_words[word * kSquaresThreads + (i + thread) % kSquaresThreads];
    a.partials[static_cast<std::int64_t>(blockIdx.x) * kSumWords + word] = sum;
  }
}

/// Adds all rows of partial sums to the words, in one block, after one carry. The dynamic shared
/// memory has kSumWords words for each group.
template <class T>
void add_words(const AddWords& a) {
  auto* sums = dynamic_shared<std::int64_t>();
  const int word = static_cast<int>(threadIdx.x % kWordThreads);
  const int group = static_cast<int>(threadIdx.x / kWordThreads);
  if (word < kSumWords) {
    std::int64_t sum = 0;
#pragma unroll 8
    for (std::int64_t row = group; row < a.rows; row += kWordGroups)
      sum += a.partials[row * kSumWords + word];
    sums[group * kSumWords + word] = sum;
  }
  __syncthreads();
  if (group == 0 && word < kSumWords) {
    for (int i = 1; i < kWordGroups; ++i) sums[word] += sums[i * kSumWords + word];
  }
  __syncthreads();
  if (group != 0 || word >= kSumWords) return;
  std::int64_t value = sums[word];
  if (word < kExactWords - 1) value &= static_cast<std::int64_t>(kLowWord);
  if (word > 0 && word < kExactWords) value += sums[word - 1] >> 32;
  a.words[word] += value;
}

/// Computes the factor of optim::clip_factor, divided by the loss scale; NaN if a gradient or a
/// loss is not finite.
template <class T>
void clip_factor(const ClipFactor& a) {
  if (threadIdx.x != 0) return;
  if (a.words[kExactWords] != 0) {
    *a.factor = __uint_as_float(0x7fc00000U);  // NaN
    return;
  }
  const double squares =
      exact_value(a.words, [](double digits, int exponent) { return ldexp(digits, exponent); });
  const double norm = sqrt(squares) / a.loss_scale;
  const double ratio = a.clip_norm / (norm + 1e-6);
  const double clipped = a.clip_norm > 0 && ratio < 1 ? ratio : 1;
  *a.factor = static_cast<float>(clipped / a.loss_scale);
}

}  // namespace trireme::ops::cuda
