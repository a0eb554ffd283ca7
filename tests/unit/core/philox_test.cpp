#include "core/philox.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace trireme {
namespace {

// Known answers: Random123 distribution, kat_vectors, philox4x32 with 10 rounds.
TEST(Philox, GivesThePublishedVectors) {
  EXPECT_EQ(philox4x32(0, 0, 0), (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(~0ULL, ~0ULL, ~0ULL),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformNumbersStayBelowOne) {
  EXPECT_EQ(uniform_double(0, 0), 0.0);
  EXPECT_EQ(uniform_double(~0U, ~0U), 1.0 - 0x1p-53);
  EXPECT_EQ(uniform_double(0x80000000U, 0), 0.5);
}

TEST(Philox, MeanVarianceAndNeighbourCorrelationAreThoseOfTheUniformLaw) {
  constexpr int kCount = 100000;
  const std::uint64_t key = philox_key(42, "test");
  double sum = 0;
  double squares = 0;
  double products = 0;
  double previous = 0.5;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const PhiloxWords words = philox4x32(key, i, 0);
    const double value = uniform_double(words[0], words[1]) - 0.5;
    sum += value;
    squares += value * value;
    products += value * previous;
    previous = value;
  }

  // The bounds are five standard errors: the sd of the mean is sqrt(1/12/n), of the variance
  // sqrt(1/180/n), of the product 1/12/sqrt(n).
  const double root = std::sqrt(double{kCount});
  EXPECT_NEAR(sum / kCount, 0.0, 5 * std::sqrt(1.0 / 12) / root);
  EXPECT_NEAR(squares / kCount, 1.0 / 12, 5 * std::sqrt(1.0 / 180) / root);
  EXPECT_NEAR(products / kCount, 0.0, 5 * (1.0 / 12) / root);
}

TEST(Philox, EveryBitIsSetHalfOfTheTime) {
  constexpr int kCounters = 20000;
  int ones[128] = {};
  for (std::uint64_t i = 0; i < kCounters; ++i) {
    const PhiloxWords words = philox4x32(7, i, 1);
    for (unsigned bit = 0; bit < 128; ++bit)
      ones[bit] += static_cast<int>((words[bit / 32] >> (bit % 32)) & 1U);
  }

  for (const int count : ones)
    EXPECT_NEAR(count, kCounters / 2, 5 * std::sqrt(kCounters / 4.0));  // five standard errors
}

TEST(Philox, KeysDifferBySeedAndPurpose) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (const char* purpose : {"init", "dropout.mlp", "dropout.embedding", "order.shuffle", ""}) {
      keys.insert(philox_key(seed, purpose));
    }
  }

  EXPECT_EQ(keys.size(), 500U);
}

}  // namespace
}  // namespace trireme
