#pragma once
#include <algorithm>
#include <cstdint>

#include "model/config.hpp"

namespace trireme::model {

/// The rules by which the depth of a nanochat model gives its other sizes and its training.
/// "Parameters" are the weights of the blocks and of the head (multiplied_parameters()).
/// Source: nanochat, commit 92d63d4, scripts/base_train.py.
struct DepthRule {
  static constexpr std::int64_t kMaxDepth = 1024;
  static constexpr std::int64_t kDefaultDepth = 20;
  static constexpr std::int64_t kHeadDim = 128;
  static constexpr std::int64_t kSequence = 2048;
  static constexpr std::int64_t kVocabulary = 32768;
  static constexpr double kTokensPerParam = 12;

  double parameters = 0;
  std::int64_t batch_tokens = 0;  // tokens of an update
  std::int64_t steps = 0;
  double rate_factor = 1;   // factor of learning rates
  double width_factor = 1;  // further factor of the rates of embeddings and head
  double weight_decay = 0;  // for matrices

  /// Returns 64 x depth, rounded up to whole heads.
  static constexpr std::int64_t hidden_size(std::int64_t depth) {
    return (64 * depth + kHeadDim - 1) / kHeadDim * kHeadDim;
  }

  static constexpr std::int64_t num_heads(std::int64_t hidden_size) {
    return std::max<std::int64_t>(hidden_size / kHeadDim, 1);
  }
};

/// Checks the depth and the width that it gives. All sizes of `config` are derived;
/// `derives_head_dim` is true if head_dim follows from the width. Returns false if the depth is
/// invalid, so that no size follows from it.
bool check_depth(const ModelConfig& config, bool derives_head_dim, Problems& problems);

/// Returns the number of weights that multiply activations: those of the blocks and of the head,
/// without embeddings, value embeddings and trained numbers of the residual stream. `config` must
/// be resolved.
double multiplied_parameters(const ModelConfig& config);

/// Returns the rules of a resolved model. `batch_tokens`: tokens of an update; 0: by the rule.
DepthRule depth_rule(const ModelConfig& config, std::int64_t batch_tokens = 0);

}  // namespace trireme::model
