#include "core/exact_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace trireme {
namespace {

ExactSum sum_of(std::span<const double> values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

/// Returns numbers from 1e-300 to 1e300, including some below the smallest normal number.
std::vector<double> wild_values() {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> exponent(-300, 300);
  std::vector<double> values{0, std::numeric_limits<double>::denorm_min(),
                             std::numeric_limits<double>::min(), 0x1.fffffffffffffp-1023};
  for (int i = 0; i < 2000; ++i) values.push_back(std::pow(10.0, exponent(random)));
  return values;
}

TEST(ExactSum, OneNumberIsItself) {
  for (const double value : wild_values()) EXPECT_EQ(sum_of(std::span(&value, 1)).value(), value);
}

TEST(ExactSum, SmallNumbersAreNotLostBesideLargeOnes) {
  std::vector<double> values(1024, 0x1p-60);
  values.push_back(1.0);
  EXPECT_EQ(sum_of(values).value(), 1.0 + 0x1p-50);
}

TEST(ExactSum, HasTheSameWordsInEveryOrderAndOnEveryNumberOfRanks) {
  std::vector<double> values = wild_values();
  ExactSum expected = sum_of(values);
  std::mt19937_64 random(6);
  for (const std::size_t ranks : {1U, 2U, 7U}) {
    std::shuffle(values.begin(), values.end(), random);
    ExactSum all;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t begin = values.size() * rank / ranks;
      const std::size_t end = values.size() * (rank + 1) / ranks;
      ExactSum one = sum_of(std::span(values).subspan(begin, end - begin));
      one.carry();
      for (std::size_t i = 0; i < one.words().size(); ++i) all.words()[i] += one.words()[i];
    }
    EXPECT_EQ(all.value(), expected.value()) << ranks;
  }
  EXPECT_NEAR(expected.value() / *std::max_element(values.begin(), values.end()), 1.0, 10.0);
}

TEST(ExactSum, CountsWhatIsNotFinite) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    ExactSum sum;
    sum.add(1.0);
    sum.add(bad);
    EXPECT_EQ(sum.num_not_finite(), 1);
    EXPECT_TRUE(std::isinf(sum.value()));
  }
}

}  // namespace
}  // namespace trireme
