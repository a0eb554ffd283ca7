#include "generate/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/number.hpp"
#include "core/philox.hpp"

namespace trireme::generate {
namespace {

struct Ranked {
  double value = 0;
  std::uint32_t id = 0;
};

/// Defines the rank order of all filters: larger values come first, and among equal values the
/// smaller id comes first.
bool ranked_before(const Ranked& a, const Ranked& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

/// Returns the `count` highest-ranked values in any order. The time is linear in the number of
/// values.
std::vector<Ranked> first_ranked(std::span<const double> values, std::size_t count) {
  std::vector<Ranked> kept;
  if (count == 0) return kept;
  kept.reserve(std::min(values.size(), 2 * count));
  double least =
      -std::numeric_limits<double>::infinity();  // values up to this one are not among the first
  const auto cut = [&] {
    const auto last = kept.begin() + static_cast<std::ptrdiff_t>(count - 1);
    std::nth_element(kept.begin(), last, kept.end(), ranked_before);
    least = last->value;
    kept.resize(count);
  };
  for (std::uint32_t id = 0; id < values.size(); ++id) {
    if (!(values[id] > least)) continue;
    kept.push_back({values[id], id});
    if (kept.size() == 2 * count) cut();
  }
  if (kept.size() > count) cut();
  return kept;
}

/// Considers the elements in rank order and finds the shortest prefix that holds at least `share`
/// of the total sum. Returns the last element of this prefix.
Ranked last_of_share(std::vector<Ranked>& all, double share) {
  double limit = 0;
  for (const Ranked& one : all) limit += one.value;
  limit *= share;
  double before = 0;
  auto first = all.begin();
  auto end = all.end();
  while (end - first > 1) {
    const auto middle = first + (end - first) / 2;
    std::nth_element(first, middle, end, ranked_before);
    double sum = before;
    for (auto one = first; one != middle; ++one) sum += one->value;
    if (sum >= limit) {
      end = middle;
    } else {
      before = sum;
      first = middle;
    }
  }
  return *first;
}

std::optional<RequestProblem> out_of(bool good, const char* field, double value,
                                     const std::string& range) {
  if (good) return std::nullopt;
  return RequestProblem{field, formatted("{}, must be {}", number_text(value), range)};
}

/// Returns false for NaN.
bool within(double value, double least, double most) {
  return value >= least && value <= most;
}

std::optional<RequestProblem> outside(double least, double most, const char* field, double value) {
  return out_of(within(value, least, most), field, value,
                formatted("in [{}, {}]", number_text(least), number_text(most)));
}

}  // namespace

std::optional<RequestProblem> find_problem(const SamplingConfig& c) {
  // The ranges include everything that OpenAI's API accepts. Values closer to 0 are probably
  // mistakes. For example, a repetition penalty close to 0 makes logits infinite.
  const bool is_greedy = c.temperature == 0;
  const std::optional<RequestProblem> problems[] = {
      out_of(is_greedy || within(c.temperature, 1e-8, 100), "temperature", c.temperature,
             "0 (the most likely token) or in [1e-8, 100]"),
      out_of(c.top_k >= 0, "top_k", static_cast<double>(c.top_k), "0 (all) or more"),
      out_of(c.top_p > 0 && c.top_p <= 1, "top_p", c.top_p, "in (0, 1]"),
      out_of(c.min_p >= 0 && c.min_p < 1, "min_p", c.min_p, "in [0, 1)"),
      outside(0.01, 100, "repetition_penalty", c.repetition_penalty),
      outside(-2, 2, "presence_penalty", c.presence_penalty),
      outside(-2, 2, "frequency_penalty", c.frequency_penalty)};
  for (const auto& problem : problems) {
    if (problem) return problem;
  }
  for (const auto& [id, bias] : c.logit_bias) {
    if (auto problem = outside(-100, 100, "logit_bias", bias)) return problem;
  }
  return std::nullopt;
}

TokenHistory::TokenHistory(std::span<const std::uint32_t> prompt)
    : prompt_(prompt.begin(), prompt.end()) {}

void TokenHistory::add(std::uint32_t id) {
  ++text_[id];
}

void TokenHistory::apply(const SamplingConfig& config, std::span<double> logits) const {
  if (const double penalty = config.repetition_penalty; penalty != 1) {
    const auto repeat = [&](std::uint32_t id) {
      logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
    };
    for (const std::uint32_t id : prompt_) repeat(id);
    for (const auto& [id, times] : text_) {
      if (!prompt_.contains(id)) repeat(id);
    }
  }
  if (config.presence_penalty != 0 || config.frequency_penalty != 0) {
    for (const auto& [id, times] : text_) {
      logits[id] -= config.presence_penalty + config.frequency_penalty * static_cast<double>(times);
    }
  }
  for (const auto& [id, bias] : config.logit_bias) logits[id] += bias;
}

std::uint32_t likeliest_token(std::span<const double> logits) {
  return static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

std::uint32_t sample_token(std::span<const double> logits, const SamplingConfig& config,
                           std::uint64_t index, std::uint64_t answer) {
  const std::uint32_t likeliest = likeliest_token(logits);
  if (config.temperature == 0) return likeliest;
  // The weights are relative to the most likely token, which has the weight 1. Tokens that a filter
  // removes get the weight 0.
  std::vector<double> weights(logits.size());
  for (std::size_t id = 0; id < weights.size(); ++id) {
    // Subtract first: a temperature of 1e-310 would make any logit infinite.
    const double below = logits[id] - logits[likeliest];
    // if the largest logit is infinite, its difference to itself is NaN
    const bool is_first = id == likeliest || below == 0;
    weights[id] = is_first ? 1 : below < 0 ? std::exp(below / config.temperature) : 0;
  }
  const auto keep_up_to = [&](const Ranked& last) {
    for (std::uint32_t id = 0; id < weights.size(); ++id) {
      if (ranked_before(last, {weights[id], id})) weights[id] = 0;
    }
  };
  if (config.top_k > 0 && config.top_k < static_cast<std::int64_t>(weights.size())) {
    // Rank by weights and not by logits: tokens with different logits but equal weights after
    // rounding count as equal.
    const std::vector<Ranked> kept = first_ranked(weights, static_cast<std::size_t>(config.top_k));
    keep_up_to(*std::max_element(kept.begin(), kept.end(), ranked_before));
  }
  if (config.top_p < 1) {
    std::vector<Ranked> all;
    for (std::uint32_t id = 0; id < weights.size(); ++id) {
      if (weights[id] > 0) all.push_back({weights[id], id});
    }
    keep_up_to(last_of_share(all, config.top_p));
  }
  double total = 0;
  for (double& weight : weights) {
    if (weight < config.min_p) weight = 0;
    total += weight;
  }
  const PhiloxWords words =
      philox4x32(philox_key(static_cast<std::uint64_t>(config.seed), "sampling"), index, answer);
  double remaining = uniform_double(words[0], words[1]) * total;
  std::uint32_t drawn = likeliest;  // used if rounding leaves no weight
  for (std::uint32_t id = 0; id < weights.size(); ++id) {
    if (weights[id] == 0) continue;
    drawn = id;
    remaining -= weights[id];
    if (remaining < 0) break;
  }
  return drawn;
}

double sampled_logprob(std::span<const double> logits, double temperature, std::uint32_t id) {
  if (temperature == 0) return 0;
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp((logit - most) / temperature);
  return (logits[id] - most) / temperature - std::log(sum);
}

TokenReport report_token(std::span<const double> logits, std::uint32_t id, std::int64_t top) {
  const double largest = logits[likeliest_token(logits)];
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  const double log_sum = largest + std::log(sum);
  const auto of = [&](std::uint32_t token) { return static_cast<float>(logits[token] - log_sum); };
  TokenReport report{id, of(id), {}};
  std::vector<Ranked> best =
      first_ranked(logits, static_cast<std::size_t>(std::max<std::int64_t>(top, 0)));
  std::sort(best.begin(), best.end(), ranked_before);
  for (const Ranked& one : best) report.top.push_back({one.id, of(one.id)});
  return report;
}

}  // namespace trireme::generate
