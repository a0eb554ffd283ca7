#include "generate/sampling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "core/philox.hpp"

namespace trireme::generate {
namespace {

using Numbers = std::vector<double>;

/// Samples by sorting all tokens: temperature, top-k, top-p, min-p, draw in the order of ids.
std::uint32_t sorted_sample(const Numbers& logits, const SamplingConfig& config,
                            std::uint64_t index) {
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](auto a, auto b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  std::map<std::uint32_t, double> kept;
  const auto weight = [&](std::uint32_t id) {
    return std::exp((logits[id] - logits[order.front()]) / config.temperature);
  };
  if (config.top_k > 0)
    order.resize(std::min<std::size_t>(order.size(), static_cast<std::size_t>(config.top_k)));
  double all = 0;
  for (const std::uint32_t id : order) all += weight(id);
  double before = 0;
  for (const std::uint32_t id : order) {
    if (before >= config.top_p * all) break;
    before += weight(id);
    if (weight(id) >= config.min_p) kept[id] = weight(id);
  }
  double total = 0;
  for (const auto& [id, one] : kept) total += one;
  const PhiloxWords words =
      philox4x32(philox_key(static_cast<std::uint64_t>(config.seed), "sampling"), index, 0);
  double remaining = uniform_double(words[0], words[1]) * total;
  for (const auto& [id, one] : kept) {
    remaining -= one;
    if (remaining < 0) return id;
  }
  return kept.rbegin()->first;
}

Numbers random_logits(std::size_t size, unsigned seed, bool coarse) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 3);
  Numbers logits(size);
  for (double& logit : logits) logit = coarse ? std::round(normal(random)) : normal(random);
  return logits;
}

TEST(SampleToken, IsWhatSortingGives) {
  const std::vector<SamplingConfig> configs{
      {.temperature = 1},
      {.temperature = 0.7, .top_k = 1},
      {.temperature = 0.7, .top_k = 50},
      {.temperature = 1.5, .top_k = 4000},
      {.temperature = 1, .top_p = 0.9},
      {.temperature = 2, .top_p = 0.3},
      {.temperature = 1, .top_p = 1e-9},
      {.temperature = 1, .min_p = 0.05},
      {.temperature = 0.85, .top_k = 50, .top_p = 0.85, .min_p = 0.02, .seed = 9}};
  for (const bool coarse : {false, true}) {  // coarse, so that many logits are equal
    for (unsigned round = 0; round < 20; ++round) {
      const Numbers logits = random_logits(round % 2 == 0 ? 3000 : 37, round, coarse);
      for (const SamplingConfig& config : configs) {
        EXPECT_EQ(sample_token(logits, config, round), sorted_sample(logits, config, round))
            << "round " << round << ", temperature " << config.temperature << ", top_k "
            << config.top_k << ", top_p " << config.top_p << ", min_p " << config.min_p;
      }
    }
  }
}

const Numbers kProbabilities{0.1, 0.4, 0.05, 0.25, 0.2};

Numbers logits() {
  Numbers values;
  for (const double p : kProbabilities) values.push_back(std::log(p));
  return values;
}

std::map<std::uint32_t, double> shares(const SamplingConfig& config, int draws) {
  std::map<std::uint32_t, double> counts;
  for (int i = 0; i < draws; ++i)
    counts[sample_token(logits(), config, static_cast<std::uint64_t>(i))] += 1.0 / draws;
  return counts;
}

TEST(SampleToken, DrawsInProportion) {
  const auto counts = shares({.temperature = 1}, 20000);
  // 4 standard deviations of 20,000 draws are at most 0.014.
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_NEAR(counts.at(i), kProbabilities[i], 0.015) << i;
  const auto sharp = shares({.temperature = 0.5}, 20000);
  double sum = 0;
  for (const double p : kProbabilities) sum += p * p;
  EXPECT_NEAR(sharp.at(1), 0.16 / sum, 0.015);
  // Top-k keeps 0.85; the cumulative sum crosses 0.595 of that at token 3.
  const auto both = shares({.temperature = 1, .top_k = 3, .top_p = 0.7}, 20000);
  EXPECT_EQ(both.size(), 2U);
  EXPECT_NEAR(both.at(1), 0.4 / 0.65, 0.015);
}

TEST(SampleToken, AnyTemperatureIsSafe) {
  for (const double temperature : {0.0, 5e-324, 1e-310, 1e-30}) {
    const SamplingConfig config{.temperature = temperature};
    for (std::uint64_t i = 0; i < 20; ++i)
      EXPECT_EQ(sample_token(logits(), config, i), 1U) << temperature;
  }
  EXPECT_EQ(shares({.temperature = 1e300}, 2000).size(), 5U);
  EXPECT_EQ(sample_token(Numbers{7, 9, 9, 1}, {.temperature = 0}, 0), 1U) << "the smaller id";
}

TEST(SampleToken, IsSafeWhereLogitsAreNotFinite) {
  const SamplingConfig filters{.temperature = 1, .top_k = 2, .top_p = 0.9, .min_p = 0.1};
  for (const SamplingConfig& config : {SamplingConfig{.temperature = 1, .top_p = 0.9}, filters}) {
    EXPECT_EQ(sample_token(Numbers{1, INFINITY, 3}, config, 0), 1U);
    EXPECT_LT(sample_token(Numbers{NAN, NAN, NAN}, config, 0), 3U);
    EXPECT_LT(sample_token(Numbers{-INFINITY, -INFINITY}, config, 0), 2U);
  }
}

TEST(SampleToken, NeverDrawsWhatIsRuledOut) {
  Numbers values = logits();
  values[1] = values[3] = -INFINITY;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const std::uint32_t id =
        sample_token(values, {.temperature = 3, .top_k = 4, .top_p = 0.999}, i);
    EXPECT_TRUE(id != 1 && id != 3) << id;
  }
}

TEST(SampleToken, IsAFunctionOfSeedAnswerAndIndex) {
  int other_seed = 0;
  int other_answer = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const SamplingConfig config{.temperature = 1, .seed = 3};
    const std::uint32_t id = sample_token(logits(), config, i);
    EXPECT_EQ(id, sample_token(logits(), config, i));
    other_seed += id != sample_token(logits(), {.temperature = 1, .seed = 4}, i) ? 1 : 0;
    other_answer += id != sample_token(logits(), config, i, 1) ? 1 : 0;
  }
  EXPECT_GT(other_seed, 10);
  EXPECT_GT(other_answer, 10);
}

TEST(TokenHistory, PenaltiesAndBias) {
  const std::array<std::uint32_t, 2> prompt{0, 1};
  TokenHistory history(prompt);
  history.add(1);
  history.add(2);
  history.add(2);
  const auto applied = [&](const SamplingConfig& config) {
    Numbers values{2, -2, 4, 5};
    history.apply(config, values);
    return values;
  };
  EXPECT_EQ(applied({}), (Numbers{2, -2, 4, 5}));
  EXPECT_EQ(applied({.repetition_penalty = 2}), (Numbers{1, -4, 2, 5}));
  EXPECT_EQ(applied({.presence_penalty = 1, .frequency_penalty = 0.5}), (Numbers{2, -3.5, 2, 5}));
  EXPECT_EQ(applied({.repetition_penalty = 2, .presence_penalty = 1, .logit_bias = {{3, -9}}}),
            (Numbers{1, -5, 1, -4}));
}

TEST(ReportToken, IsALogSoftmax) {
  const TokenReport report = report_token(logits(), 3, 2);
  EXPECT_EQ(report.id, 3U);
  EXPECT_NEAR(*report.logprob, std::log(0.25), 1e-6);
  ASSERT_EQ(report.top.size(), 2U);
  EXPECT_EQ(report.top[0].id, 1U);
  EXPECT_NEAR(report.top[0].logprob, std::log(0.4), 1e-6);
  EXPECT_EQ(report.top[1].id, 3U);
  EXPECT_TRUE(report_token(logits(), 0, 0).top.empty());
  EXPECT_EQ(report_token(logits(), 0, 5).top.back().id, 2U);
}

TEST(SamplingConfig, NamesWhatIsOutOfRange) {
  EXPECT_FALSE(find_problem(SamplingConfig{.temperature = 0, .top_k = 0, .top_p = 1}));
  const auto text = [](const SamplingConfig& config) {
    const auto problem = find_problem(config);
    return problem ? problem->field + " = " + problem->message : "";
  };
  const std::string range = "must be 0 (the most likely token) or in [1e-8, 100]";
  EXPECT_EQ(text({.temperature = -1}), "temperature = -1, " + range);
  EXPECT_EQ(text({.temperature = 1e-310}), "temperature = 1e-310, " + range);
  EXPECT_EQ(text({.temperature = std::nan("")}), "temperature = nan, " + range);
  EXPECT_EQ(text({.top_k = -2}), "top_k = -2, must be 0 (all) or more");
  EXPECT_EQ(text({.top_p = 0}), "top_p = 0, must be in (0, 1]");
  EXPECT_EQ(text({.min_p = 1}), "min_p = 1, must be in [0, 1)");
  EXPECT_EQ(text({.repetition_penalty = 0}), "repetition_penalty = 0, must be in [0.01, 100]");
  EXPECT_EQ(text({.presence_penalty = -1e300}), "presence_penalty = -1e+300, must be in [-2, 2]");
  EXPECT_EQ(text({.frequency_penalty = INFINITY}), "frequency_penalty = inf, must be in [-2, 2]");
  EXPECT_EQ(text({.logit_bias = {{1, std::nan("")}}}), "logit_bias = nan, must be in [-100, 100]");
}

}  // namespace
}  // namespace trireme::generate
