#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "generate/request.hpp"

namespace trireme {

/// What is out of range; none: nothing. A message follows "temperature = " or "--temperature ". The
/// ranges of commands and requests alike.
std::optional<RequestProblem> find_problem(const SamplingConfig& config);

/// Which tokens a text has, for penalties.
class TokenHistory {
 public:
  explicit TokenHistory(std::span<const std::uint32_t> prompt);

  void add(std::uint32_t id);

  /// Penalties and bias, on logits [vocab].
  void apply(const SamplingConfig& config, std::span<double> logits) const;

 private:
  std::unordered_set<std::uint32_t> prompt_;
  std::unordered_map<std::uint32_t, std::int64_t> text_;  // how often
};

/// One token from logits [vocab], which may hold -inf (never drawn) but should hold no NaN and one finite
/// number at least: else a token all the same. Equal logits go to the smaller id. The vocabulary is never sorted.
///   index   of the draw in its text, from 0
///   answer  Request::answer
std::uint32_t sample_token(std::span<const double> logits, const SamplingConfig& config,
                           std::uint64_t index, std::uint64_t answer = 0);

/// The id with the largest logit.
std::uint32_t likeliest_token(std::span<const double> logits);

/// log-softmax of logits [vocab] at `id`, and of the `top` largest.
TokenReport report_token(std::span<const double> logits, std::uint32_t id, std::int64_t top);

}  // namespace trireme
