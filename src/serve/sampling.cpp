#include "serve/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.hpp"
#include "core/philox.hpp"

namespace trireme {

void check(const SamplingConfig& config) {
  if (!(config.temperature >= 0) || !std::isfinite(config.temperature)) {
    fail(ErrorKind::usage, "--temperature {}, must be 0 or more", config.temperature);
  }
  if (config.top_k < 0) fail(ErrorKind::usage, "--top-k {}, must be 0 (all) or more", config.top_k);
  if (!(config.top_p > 0 && config.top_p <= 1))
    fail(ErrorKind::usage, "--top-p {}, must be in (0, 1]", config.top_p);
}

std::int64_t sample_token(const at::Tensor& logits, const SamplingConfig& config,
                          std::uint64_t index) {
  if (config.temperature == 0) return logits.argmax().item<std::int64_t>();
  const at::Tensor probabilities =
      logits.to(at::kDouble).div(config.temperature).softmax(0).contiguous();
  const double* p = probabilities.const_data_ptr<double>();
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(probabilities.numel()));
  std::iota(tokens.begin(), tokens.end(), 0);
  // Ties go to the smaller id, so that a draw is reproducible.
  std::sort(tokens.begin(), tokens.end(),
            [&](auto a, auto b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
  if (config.top_k > 0)
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(config.top_k)));
  double kept = 0;
  for (const auto token : tokens) kept += p[token];
  double nucleus = 0;
  std::size_t count = 0;
  while (count < tokens.size() && nucleus < config.top_p * kept) nucleus += p[tokens[count++]];
  tokens.resize(std::max<std::size_t>(count, 1));

  const PhiloxWords words =
      philox4x32(philox_key(static_cast<std::uint64_t>(config.seed), "sampling"), index, 0);
  double remaining = uniform_double(words[0], words[1]) * nucleus;
  for (const auto token : tokens) {
    remaining -= p[token];
    if (remaining < 0) return token;
  }
  return tokens.back();
}

}  // namespace trireme
