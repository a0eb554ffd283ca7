#include "serve/sampling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

const std::vector<float> kProbabilities{0.1F, 0.4F, 0.05F, 0.25F, 0.2F};

at::Tensor logits() {
  return at::tensor(kProbabilities).log();
}

std::map<std::int64_t, double> shares(const SamplingConfig& config, int draws) {
  std::map<std::int64_t, double> counts;
  for (int i = 0; i < draws; ++i)
    counts[sample_token(logits(), config, static_cast<std::uint64_t>(i))] += 1.0 / draws;
  return counts;
}

TEST(Sampling, TemperatureZeroTakesTheLikeliest) {
  for (std::uint64_t i = 0; i < 20; ++i)
    EXPECT_EQ(sample_token(logits(), {.temperature = 0}, i), 1);
}

TEST(Sampling, DrawsInProportion) {
  const auto counts = shares({.temperature = 1}, 20000);
  // 4 standard deviations of 20,000 draws are at most 0.014.
  for (std::int64_t i = 0; i < 5; ++i)
    EXPECT_NEAR(counts.at(i), kProbabilities[static_cast<std::size_t>(i)], 0.015) << i;
}

TEST(Sampling, TemperatureSharpens) {
  const auto counts = shares({.temperature = 0.5}, 20000);
  double sum = 0;
  for (const float p : kProbabilities) sum += static_cast<double>(p) * p;
  EXPECT_NEAR(counts.at(1), 0.16 / sum, 0.015);
}

TEST(Sampling, TopKAndTopPKeepTheLikeliest) {
  const auto tokens = [](const SamplingConfig& config) {
    std::set<std::int64_t> seen;
    for (const auto& [token, share] : shares(config, 2000)) seen.insert(token);
    return seen;
  };
  EXPECT_EQ(tokens({.temperature = 1, .top_k = 2}), (std::set<std::int64_t>{1, 3}));
  EXPECT_EQ(tokens({.temperature = 1, .top_k = 1}), (std::set<std::int64_t>{1}));
  EXPECT_EQ(tokens({.temperature = 1, .top_k = 99}).size(), 5U);
  // 0.4 + 0.25 is below 0.7: the token that crosses stays.
  EXPECT_EQ(tokens({.temperature = 1, .top_p = 0.7}), (std::set<std::int64_t>{1, 3, 4}));
  EXPECT_EQ(tokens({.temperature = 1, .top_p = 1e-9}), (std::set<std::int64_t>{1}));
  const auto both = shares({.temperature = 1, .top_k = 3, .top_p = 0.7},
                           20000);  // of 0.85 kept, 0.595 crosses at token 3
  EXPECT_EQ(both.size(), 2U);
  EXPECT_NEAR(both.at(1), 0.4 / 0.65, 0.015);
}

TEST(Sampling, IsAFunctionOfSeedAndIndex) {
  int differ = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(sample_token(logits(), {.temperature = 1, .seed = 3}, i),
              sample_token(logits(), {.temperature = 1, .seed = 3}, i));
    differ += sample_token(logits(), {.temperature = 1, .seed = 3}, i) !=
                      sample_token(logits(), {.temperature = 1, .seed = 4}, i)
                  ? 1
                  : 0;
  }
  EXPECT_GT(differ, 10);
}

TEST(Sampling, RefusesWhatIsOutOfRange) {
  EXPECT_NO_THROW(check(SamplingConfig{.temperature = 0, .top_k = 0, .top_p = 1}));
  EXPECT_TRUE(contains(error_of([] { check(SamplingConfig{.temperature = -1}); }).what(),
                       "--temperature -1"));
  EXPECT_TRUE(contains(error_of([] { check(SamplingConfig{.top_k = -2}); }).what(), "--top-k -2"));
  EXPECT_TRUE(contains(error_of([] { check(SamplingConfig{.top_p = 0}); }).what(), "--top-p 0"));
  EXPECT_THROW(check(SamplingConfig{.temperature = std::nan("")}), Error);
}

}  // namespace
}  // namespace trireme
