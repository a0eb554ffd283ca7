#include "data/order/blend.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/error.hpp"

namespace trireme::data {
namespace {

using Weights = std::vector<double>;

/// Computes Megatron's rule directly: for each sample takes the first source with the largest w *
/// max(i, 1) - count, in doubles.
std::vector<BlendPick> megatron(const Weights& normalized, std::size_t num_samples) {
  std::vector<std::int64_t> count(normalized.size(), 0);
  std::vector<BlendPick> picks;
  for (std::size_t i = 0; i < num_samples; ++i) {
    const volatile double at = std::max(static_cast<double>(i), 1.0);
    std::size_t best = 0;
    double best_error = 0;
    for (std::size_t d = 0; d < normalized.size(); ++d) {
      const volatile double wanted = normalized[d] * at;
      const double error = wanted - static_cast<double>(count[d]);
      if (d == 0 || error > best_error) {
        best = d;
        best_error = error;
      }
    }
    picks.push_back({static_cast<std::uint32_t>(best), static_cast<std::uint64_t>(count[best]++)});
  }
  return picks;
}

Weights random_weights(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  Weights weights;
  for (std::size_t i = 0; i < count; ++i)
    weights.push_back(0.001 + std::uniform_real_distribution<>(0, 1)(random));
  return weights;
}

std::vector<Weights> cases() {
  std::vector<Weights> all{{1}, {1, 1}, {0.7, 0.3}, {0.3, 0.7}, {1, 1, 1}, {1e-4, 1}, {5, 3, 2}};
  for (const std::size_t count : {2, 3, 8, 9, 17, 130, 300})
    all.push_back(random_weights(count, static_cast<unsigned>(count)));
  return all;
}

TEST(Blend, MegatronRuleIsMegatrons) {
  constexpr std::size_t kSamples = 150'000;  // more than two windows
  for (const Weights& weights : cases()) {
    const auto blend = make_blend(weights, BlendRule::megatron);
    const auto expected = megatron(normalize_weights(weights), kSamples);
    for (std::size_t i = 0; i < kSamples; ++i) {
      const BlendPick pick = blend->pick(i);
      ASSERT_EQ(pick.source, expected[i].source) << weights.size() << " sources, sample " << i;
      ASSERT_EQ(pick.ordinal, expected[i].ordinal);
    }
    for (const std::size_t i : {149'999, 3, 70'000, 65'535, 131'072, 0}) {  // any order
      ASSERT_EQ(blend->pick(i).source, expected[i].source) << i;
      ASSERT_EQ(blend->pick(i).ordinal, expected[i].ordinal) << i;
    }
  }
}

/// The table is the result of the same greedy rule with rounded weights, and never far from the
/// weights.
TEST(Blend, TableFollowsTheGreedyRuleAndStaysNearTheWeights) {
  for (const Weights& weights : cases()) {
    const auto blend = make_blend(weights, BlendRule::table);
    const Weights shares = normalize_weights(weights);
    const std::size_t sources = shares.size();
    std::vector<std::uint64_t> count(sources, 0);
    Weights quantized;
    for (const std::uint64_t share : blend->counts(65536))
      quantized.push_back(static_cast<double>(share) / 65536);
    const auto expected = megatron(quantized, 65536);
    double furthest = 0;
    double furthest_greedy = 0;
    std::vector<double> greedy(sources, 0);
    for (std::uint64_t i = 0; i < 150'000; ++i) {
      const BlendPick pick = blend->pick(i);
      ASSERT_EQ(pick.source, expected[i % 65536].source) << i;
      ASSERT_EQ(pick.ordinal, count[pick.source]++) << i;
      if (i < 65536) {
        greedy[pick.source] += 1;
        for (std::size_t s = 0; s < sources; ++s) {
          const double fair = quantized[s] * static_cast<double>(i + 1);
          furthest_greedy = std::max(furthest_greedy, std::abs(greedy[s] - fair));
        }
      }
      for (std::size_t s = 0; s < sources; ++s) {
        const double fair = quantized[s] * static_cast<double>(i + 1);
        furthest = std::max(furthest, std::abs(static_cast<double>(count[s]) - fair));
      }
    }
    EXPECT_EQ(blend->counts(150'000), count);
    EXPECT_LE(furthest, furthest_greedy + 1e-6) << "as even as the greedy rule in one table";
    for (std::size_t s = 0; s < sources; ++s) EXPECT_NEAR(quantized[s], shares[s], 1.0 / 65536);
  }
}

TEST(Blend, RulesAgreeOnTheFirstSamplesOfRoundWeights) {
  const Weights weights{0.5, 0.25, 0.25};  // multiples of 1/65536
  const auto table = make_blend(weights, BlendRule::table);
  const auto exact = make_blend(weights, BlendRule::megatron);
  for (std::uint64_t i = 0; i < 65536; ++i)
    ASSERT_EQ(table->pick(i).source, exact->pick(i).source) << i;
}

TEST(Blend, TableLooksUpAnySample) {
  const auto blend = make_blend(Weights{2, 1, 1}, BlendRule::table);
  const std::uint64_t far = std::uint64_t{1} << 60;

  EXPECT_EQ(blend->pick(far).ordinal + (blend->pick(far).source == 0 ? 0 : far / 4), far / 2);
  EXPECT_EQ(blend->counts(far), (std::vector<std::uint64_t>{far / 2, far / 4, far / 4}));
}

TEST(Blend, RefusesBadWeights) {
  EXPECT_THROW(make_blend(Weights{}, BlendRule::table), Error);
  EXPECT_THROW(make_blend(Weights{1, 0}, BlendRule::table), Error);
  EXPECT_THROW(make_blend(Weights{1, -1}, BlendRule::megatron), Error);
  EXPECT_THROW(make_blend(Weights{1, 1e-7}, BlendRule::table), Error);
  EXPECT_NO_THROW(make_blend(Weights{1, 1e-7}, BlendRule::megatron));
  EXPECT_THROW(make_blend(Weights(5000, 1.0), BlendRule::table), Error);
  EXPECT_THROW(static_cast<void>(parse_blend_rule("greedy", "data.blend_rule")), Error);
}

/// Sums like NumPy 2 for this number of terms: eight running sums, then pairwise.
TEST(Blend, NormalizesWithNumpysSum) {
  Weights terms;
  for (int i = 1; i <= 300; ++i) terms.push_back(1.0 / i + 0.1 * (i % 7));
  for (const auto& [count, sum] :
       std::vector<std::pair<std::size_t, double>>{{7, 4.692857142857143},
                                                   {9, 5.228968253968254},
                                                   {128, 43.533147092589175},
                                                   {300, 96.5826638802995}}) {
    const Weights some(terms.begin(), terms.begin() + static_cast<long>(count));
    EXPECT_EQ(normalize_weights(some).front(), some.front() / sum) << count;
  }
}

}  // namespace
}  // namespace trireme::data
