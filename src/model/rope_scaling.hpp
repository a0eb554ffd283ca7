#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::model {

/// Changes rotary frequencies for texts longer than those of pretraining. Names, defaults and
/// formulas are those of transformers 4.57 and 5.23 (modeling_rope_utils.py), computed in fp64.
/// Sources: Peng et al., "YaRN", 2023; Llama 3.1; Ding et al., "LongRoPE", 2024.
///
/// In transformers, the frequencies of dynamic and longrope depend on the length of each text.
/// Here, they depend only on model.max_seq_len: dynamic refuses a max_seq_len above the original
/// length, and longrope uses long_factor if max_seq_len is above the original length.
struct RopeScaling {
  enum class Kind { none, yarn, llama3, linear, dynamic, longrope };

  Kind kind = Kind::none;
  double factor = 1;              // new length / original length
  std::int64_t original_max = 0;  // original_max_position_embeddings: original length in tokens
  double attention_factor = 1;    // yarn, longrope: multiplies cos and sin; has a default
  double beta_fast = 32;  // yarn: frequencies with more rotations over the original length stay
  double beta_slow = 1;   // yarn: frequencies with fewer rotations are divided by factor
  bool truncate = true;   // yarn: round the limits to whole indices
  double low_freq_factor = 1;  // llama3: the same two limits, in rotations
  double high_freq_factor = 4;
  std::vector<double> short_factor;  // longrope: divisors of the frequencies, one for each
  std::vector<double> long_factor;
};

/// Returns the name in transformers: "yarn"; "default" for none.
std::string_view rope_kind_name(RopeScaling::Kind kind);
/// Returns the kind with that name in transformers.
std::optional<RopeScaling::Kind> find_rope_kind(std::string_view name);

/// Parses "yarn,factor=16,original_max_position_embeddings=2048", also with beta_fast, beta_slow,
/// attention_factor and truncate; "llama3,..." with low_freq_factor and high_freq_factor; "linear"
/// with factor; "longrope,..." with short_factor=1:1.5:2 and long_factor; "" is none. Throws
/// Error(usage) with the expected form.
RopeScaling parse_rope_scaling(std::string_view text);

/// Returns the text that parse_rope_scaling reads, with every value of the kind.
std::string rope_scaling_text(const RopeScaling& scaling);

/// Throws Error(usage) if the scaling does not fit heads with `rotated_dim` rotated elements or
/// texts of max_seq_len tokens.
void check_fits(const RopeScaling& scaling, std::int64_t rotated_dim, std::int64_t max_seq_len);

/// Returns the frequencies in radians per position: [head_dim / 2]. `max_seq_len` is for longrope.
std::vector<double> rope_frequencies(std::int64_t head_dim, double theta,
                                     const RopeScaling& scaling, std::int64_t max_seq_len = 0);

/// Returns yarn's default factor of cos and sin; `mscale` is for DeepSeek models.
double yarn_attention_factor(double factor, double mscale = 1);

/// Returns longrope's default factor of cos and sin.
double longrope_attention_factor(double factor, std::int64_t original_max);

}  // namespace trireme::model
