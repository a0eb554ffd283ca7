#pragma once
#include <ATen/ATen.h>

#include <cstdint>

namespace trireme {

/// How the next token is drawn. Order: temperature, then top-k, then top-p (the token that crosses
/// the limit stays), then draw.
struct SamplingConfig {
  double temperature = 0.8;  // 0: the most likely token
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;
  std::int64_t seed = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("temperature", self.temperature, "spread of the draw; 0: always the most likely token");
    visit("top_k", self.top_k, "draw among the k most likely tokens; 0: all");
    visit("top_p", self.top_p,
          "draw among the smallest set of tokens with this probability, in (0, 1]");
    visit("seed", self.seed, "of the draws");
  }
};

/// Throws Error(usage) naming every value out of range.
void check(const SamplingConfig& config);

/// One token from logits [vocab] (fp32, CPU); `index` is the position of the draw: equal (seed,
/// index) draw alike.
std::int64_t sample_token(const at::Tensor& logits, const SamplingConfig& config,
                          std::uint64_t index);

}  // namespace trireme
