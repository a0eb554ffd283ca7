#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/dtype.hpp"
#include "unit/ops/kernel_tables.hpp"

/// The kernels of tiles of attention.
namespace trireme::ops::kernels {
namespace {

TEST_P(EveryTable, TransposesAndPacksPairs) {
  std::vector<std::uint32_t> in(32 * 48);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint32_t>(i);
  std::vector<std::uint32_t> across(in.size());
  Halves rows(4 * 16);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint32_t> pairs(2 * 16);

  GetParam()->transpose(in.data(), 48, across.data(), 32, 32, 48);
  GetParam()->pack_pairs(rows.data(), 16, 4, 16, pairs.data());

  for (std::size_t r = 0; r < 32; ++r) {
    for (std::size_t c = 0; c < 48; ++c) EXPECT_EQ(across[c * 32 + r], in[r * 48 + c]);
  }
  for (std::uint32_t i = 0; i < 16; ++i) EXPECT_EQ(pairs[16 + i], (32 + i) | ((48 + i) << 16));
}

/// Returns one bound for each of 16 queries, which moves by one key from query to query or stays.
std::vector<std::int32_t> intervals_from(std::int32_t first, bool moves) {
  std::vector<std::int32_t> bounds(16, first);
  for (std::int32_t q = 0; q < 16 && moves; ++q) bounds[static_cast<std::size_t>(q)] += q;
  return bounds;
}

/// Two tiles of keys, the second with larger scores, with the diagonal, and with a first key that
/// is hidden from all queries or moves with them. The result equals one softmax over all keys.
TEST_P(EveryTable, OnlineSoftmaxEqualsSoftmax) {
  constexpr std::int64_t kKeys = 4;
  constexpr std::int64_t kQueries = 16;
  constexpr double kScale = 0.5;
  for (const auto& [growth, moves] :
       {std::pair{1.0F, false}, std::pair{100.0F, false}, std::pair{1.0F, true}}) {
    auto scores = random_floats(2 * kKeys * kQueries, 5);
    for (std::size_t i = kKeys * kQueries; i < scores.size(); ++i) scores[i] += growth;
    Floats maximum(kQueries, -INFINITY);
    Floats total(kQueries, 0);
    Floats out(kQueries, 0);  // width 1, values 1: the sum of weights
    Halves pairs(kKeys * kQueries);
    // Query 0 sees keys 1 to 4 of 8. If the begin moves, queries from 7 on see none.
    const auto begin = intervals_from(1, moves);
    const auto end = intervals_from(5, true);
    for (std::int64_t tile = 0; tile < 2; ++tile) {
      const ScoreTile shape{kKeys,        kQueries,   static_cast<std::int32_t>(tile * kKeys),
                            begin.data(), end.data(), kScale};
      GetParam()->softmax_tile(shape, scores.data() + tile * kKeys * kQueries, maximum.data(),
                               total.data(), pairs.data(), out.data(), 1);
      for (std::size_t key = 0; key < kKeys; ++key) {
        for (std::size_t q = 0; q < kQueries; ++q) {
          out[q] += from_bf16_bits(pairs[(key / 2 * kQueries + q) * 2 + key % 2]);
        }
      }
    }
    for (std::size_t q = 0; q < kQueries; ++q) {
      double expected = 0;
      for (std::size_t key = moves ? 1 + q : 1; key < std::min<std::size_t>(8, 5 + q); ++key) {
        expected += std::exp(kScale * scores[key * kQueries + q]);
      }
      if (expected == 0) {
        EXPECT_EQ(total[q], 0.0F) << "query " << q;
        continue;
      }
      EXPECT_NEAR(maximum[q] * std::log(2.0) + std::log(total[q]), std::log(expected), 1e-5)
          << "query " << q;
      EXPECT_NEAR(out[q] / total[q], 1.0, 4e-3);  // weights rounded to bf16
    }
  }
}

TEST_P(EveryTable, SoftmaxBackwardFollowsTheFormula) {
  constexpr std::int64_t kKeys = 2;
  constexpr std::int64_t kQueries = 16;
  const auto scores = random_floats(kKeys * kQueries, 6);
  const auto grad_weights = random_floats(kKeys * kQueries, 7);
  const auto lse = random_floats(kQueries, 8);
  const auto along = random_floats(kQueries, 9);
  Halves weights(scores.size());
  Halves grads(scores.size());
  Halves pairs(scores.size());

  for (const bool moves : {false, true}) {
    // Query q sees key 1 from q = 1 on and, if the begin moves, only key q.
    const auto begin = intervals_from(0, moves);
    const auto end = intervals_from(1, true);
    GetParam()->softmax_tile_backward({kKeys, kQueries, 0, begin.data(), end.data(), 0.5F},
                                      scores.data(), grad_weights.data(), lse.data(), along.data(),
                                      weights.data(), grads.data(), pairs.data());

    for (std::size_t key = 0; key < kKeys; ++key) {
      for (std::size_t q = 0; q < kQueries; ++q) {
        const auto i = key * kQueries + q;
        const bool sees = moves ? key == q : key <= q;
        const double weight = sees ? std::exp(0.5 * scores[i] - lse[q]) : 0.0;
        const double grad = weight * (grad_weights[i] - along[q]) * 0.5;
        EXPECT_NEAR(from_bf16_bits(weights[i]), weight, 4e-3 * weight);
        EXPECT_NEAR(from_bf16_bits(grads[i]), grad, 4e-3 * std::abs(grad));
        EXPECT_EQ(pairs[2 * q + key], grads[i]);
      }
    }
  }
}

/// The kernels of fp32 write over their scores. The result has the precision of fp32.
TEST_P(EveryTable, SoftmaxInFp32IsExactAndReversible) {
  constexpr std::int64_t kKeys = 6;
  constexpr std::int64_t kQueries = 16;
  const auto scores = random_floats(kKeys * kQueries, 5);
  const auto grad_weights = random_floats(kKeys * kQueries, 7);
  const auto along = random_floats(kQueries, 9);
  const auto begin = intervals_from(0, false);
  const auto end = intervals_from(1, true);  // query q sees q + 1 keys
  const ScoreTile tile{kKeys, kQueries, 0, begin.data(), end.data(), 0.5F};
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

}  // namespace
}  // namespace trireme::ops::kernels
