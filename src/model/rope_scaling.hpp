#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::model {

/// Changes rotary frequencies for texts longer than those of pretraining. Names, defaults and
/// formulas are those of transformers 4.57 and 5.23 (modeling_rope_utils.py), computed in fp64.
/// Sources: Peng et al., "YaRN", 2023; Llama 3.1.
struct RopeScaling {
  enum class Kind { none, yarn, llama3 };

  Kind kind = Kind::none;
  double factor = 1;              // new length / original length
  std::int64_t original_max = 0;  // original_max_position_embeddings: original length in tokens
  double attention_factor = 1;    // multiplies cos and sin; default of yarn: 0.1 ln(factor) + 1
  double beta_fast = 32;  // yarn: frequencies with more rotations over the original length stay
  double beta_slow = 1;   // yarn: frequencies with fewer rotations are divided by factor
  bool truncate = true;   // yarn: round the limits to whole indices
  double low_freq_factor = 1;  // llama3: the same two limits, in rotations
  double high_freq_factor = 4;
};

/// Parses "yarn,factor=16,original_max_position_embeddings=2048", also with beta_fast, beta_slow,
/// attention_factor and truncate; "llama3,..." with low_freq_factor and high_freq_factor; "" is
/// none. Throws Error(usage) with the expected form.
RopeScaling parse_rope_scaling(std::string_view text);

/// Returns the text that parse_rope_scaling reads, with every value of the kind.
std::string rope_scaling_text(const RopeScaling& scaling);

/// Returns the frequencies in radians per position: [head_dim / 2].
std::vector<double> rope_frequencies(std::int64_t head_dim, double theta,
                                     const RopeScaling& scaling);

/// Returns yarn's default factor of cos and sin; `mscale` is for DeepSeek models.
double yarn_attention_factor(double factor, double mscale = 1);

}  // namespace trireme::model
