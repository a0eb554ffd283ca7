#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "generate/request.hpp"

namespace trireme::generate {

/// Returns the first value out of range; nullopt if there is none. The caller writes "temperature =
/// " or "--temperature " before the message. The same ranges apply to commands and to requests.
std::optional<RequestProblem> find_problem(const SamplingConfig& config);

class TokenHistory {
 public:
  explicit TokenHistory(std::span<const std::uint32_t> prompt);

  void add(std::uint32_t id);

  /// Applies penalties and bias to logits [vocab].
  void apply(const SamplingConfig& config, std::span<double> logits) const;

 private:
  std::unordered_set<std::uint32_t> prompt_;
  std::unordered_map<std::uint32_t, std::int64_t> text_;  // number of occurrences
};

/// Samples one token from logits [vocab]. -inf means never sampled. NaN, or no finite logit, is
/// invalid, but the function still returns a token. If logits are equal, the smaller id ranks
/// first. The vocabulary is never sorted.
///   index   number of the draw in its answer, from 0
///   answer  Request::answer
std::uint32_t sample_token(std::span<const double> logits, const SamplingConfig& config,
                           std::uint64_t index, std::uint64_t answer = 0);

std::uint32_t likeliest_token(std::span<const double> logits);

/// Returns the log-softmax of logits [vocab] / temperature at `id`; 0 if the temperature is 0.
double sampled_logprob(std::span<const double> logits, double temperature, std::uint32_t id);

/// Returns the log-softmax of logits [vocab] at `id` and of the `top` largest.
TokenReport report_token(std::span<const double> logits, std::uint32_t id, std::int64_t top);

}  // namespace trireme::generate
