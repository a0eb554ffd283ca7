#pragma once
#include <cstdint>
#include <map>

namespace trireme {

/// How the next token is drawn. Order: penalties (repetition, then presence and frequency) and bias,
/// mask, temperature, top-k, top-p (the token that crosses the limit stays), min-p, draw. Each
/// filter looks at what the ones before it left, as transformers' processors do. MiniMind V3 divides by
/// the temperature before the repetition penalty: the same numbers. Ranges: find_problem in sampling.hpp.
struct SamplingConfig {
  double temperature = 0.8;         // 0: the most likely token
  std::int64_t top_k = 0;           // 0: all
  double top_p = 1.0;               // in (0, 1]
  double min_p = 0.0;               // in [0, 1): of the most likely token's probability
  double repetition_penalty = 1.0;  // of ids in prompt and text: positive logits / p, others * p
  double presence_penalty = 0.0;    // subtracted from logits of ids in the text
  double frequency_penalty = 0.0;   // the same, for each time that it is there
  std::map<std::uint32_t, double> logit_bias = {};  // added
  std::int64_t seed = 0;  // draw i of answer a is a function of (seed, a, i) and the logits
};

}  // namespace trireme
