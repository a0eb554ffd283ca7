#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// How rotary frequencies are changed for texts longer than those a model was first trained on.
/// Names, defaults and formulas are those of transformers 4.57 and 5.23 (modeling_rope_utils.py),
/// computed in fp64. Sources: Peng et al., "YaRN", 2023; Llama 3.1.
struct RopeScaling {
  enum class Kind { none, yarn, llama3 };

  Kind kind = Kind::none;
  double factor = 1;              // new length / old length
  std::int64_t original_max = 0;  // original_max_position_embeddings: the old length, in tokens
  double attention_factor = 1;    // of cos and sin; yarn's default is 0.1 ln(factor) + 1
  double beta_fast = 32;          // yarn: turns over the old length, above: not changed
  double beta_slow = 1;           // yarn: below: divided by factor
  bool truncate = true;           // yarn: between whole indices
  double low_freq_factor = 1;     // llama3: the same two borders, in turns
  double high_freq_factor = 4;
};

/// A name and what follows it: "yarn,factor=16,original_max_position_embeddings=2048", also with
/// beta_fast, beta_slow, attention_factor, truncate; "llama3,..." with low_freq_factor and
/// high_freq_factor; "" is none. Throws Error(usage) saying what it must be.
RopeScaling parse_rope_scaling(std::string_view text);

/// The text that parses to it, with every value of its kind.
std::string rope_scaling_text(const RopeScaling& scaling);

/// Radians a position: [head_dim / 2].
std::vector<double> rope_frequencies(std::int64_t head_dim, double theta,
                                     const RopeScaling& scaling);

/// What yarn multiplies cos and sin with where nothing else is said; also with DeepSeek's mscale.
double yarn_attention_factor(double factor, double mscale = 1);

}  // namespace trireme
