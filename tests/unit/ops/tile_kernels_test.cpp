#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/kernels.hpp"

/// The kernels of attention in fp32, in every table that the machine can run.
namespace trireme::ops::kernels {
namespace {

using Floats = std::vector<float>;

Floats random_numbers(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

class TileKernels : public ::testing::TestWithParam<const Table*> {};

/// The kernels of fp32 write over their scores. The result has the precision of fp32.
TEST_P(TileKernels, SoftmaxInFp32IsExactAndReversible) {
  constexpr std::int64_t kKeys = 6;
  constexpr std::int64_t kQueries = 16;
  const auto scores = random_numbers(kKeys * kQueries, 5);
  const auto grad_weights = random_numbers(kKeys * kQueries, 7);
  const auto along = random_numbers(kQueries, 9);
  const ScoreTile tile{kKeys, kQueries, {0, 1}, false, true, 0.5F};  // query q sees q + 1 keys
  Floats weights = scores;
  Floats maximum(kQueries, -INFINITY);
  Floats total(kQueries, 0);
  Floats out(kQueries, 0);

  GetParam()->softmax_tile_f32(tile, weights.data(), maximum.data(), total.data(), weights.data(),
                               out.data(), 1);

  Floats lse(kQueries);
  for (std::size_t q = 0; q < kQueries; ++q)
    lse[q] = maximum[q] * std::log(2.0F) + std::log(total[q]);
  Floats again = scores;
  Floats grads = grad_weights;
  GetParam()->softmax_tile_backward_f32(tile, again.data(), grads.data(), lse.data(), along.data(),
                                        again.data(), grads.data(), nullptr);
  for (std::size_t q = 0; q < kQueries; ++q) {
    double sum = 0;
    for (std::size_t key = 0; key < kKeys && key <= q; ++key)
      sum += std::exp(0.5 * scores[key * kQueries + q]);
    for (std::size_t key = 0; key < kKeys; ++key) {
      const std::size_t i = key * kQueries + q;
      const double weight = key <= q ? std::exp(0.5 * scores[i]) / sum : 0;
      EXPECT_NEAR(weights[i] / total[q], weight, 1e-6 * weight);
      EXPECT_NEAR(again[i], weight, 1e-6 * weight);
      EXPECT_NEAR(grads[i], weight * (grad_weights[i] - along[q]) * 0.5, 2e-6);
    }
  }
}

TEST_P(TileKernels, MultipliesSmallMatrices) {
  if (GetParam()->small_product == nullptr) GTEST_SKIP() << "this instruction set has no kernel";
  constexpr std::int64_t kDepth = 5;
  for (const std::int64_t columns : {32, 64}) {
    for (const std::int64_t rows : {1, 12, 29}) {
      const auto a = random_numbers(static_cast<std::size_t>(rows * 7), 1);
      const auto b = random_numbers(static_cast<std::size_t>(kDepth * columns), 2);
      const auto before = random_numbers(static_cast<std::size_t>(rows * (columns + 3)), 3);
      for (const bool add : {false, true}) {
        Floats out = before;
        GetParam()->small_product(
            {a.data(), 7, b.data(), columns, out.data(), columns + 3, rows, columns, kDepth, add});
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < columns + 3; ++c) {
            const auto i = static_cast<std::size_t>(r * (columns + 3) + c);
            double expected = add || c >= columns ? before[i] : 0;
            for (std::int64_t k = 0; k < kDepth && c < columns; ++k)
              expected += static_cast<double>(a[static_cast<std::size_t>(r * 7 + k)]) *
                          b[static_cast<std::size_t>(k * columns + c)];
            EXPECT_NEAR(out[i], expected, 1e-5)
                << rows << " x " << columns << ", " << r << ' ' << c;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfThisMachine, TileKernels,
                         ::testing::ValuesIn(usable_tables().begin(), usable_tables().end()),
                         [](const auto& instance) { return std::string(instance.param->name); });

}  // namespace
}  // namespace trireme::ops::kernels
