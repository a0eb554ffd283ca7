#pragma once
#include <cstdint>

#include "model/config.hpp"

namespace trireme::model {

/// The rules by which the depth of a nanochat model gives its other sizes and its training.
/// Source: nanochat, commit 92d63d4, scripts/base_train.py.
struct DepthRule {
  static constexpr std::int64_t kHeadDim = 128;
  static constexpr std::int64_t kSequence = 2048;
  static constexpr std::int64_t kVocabulary = 32768;
  static constexpr double kTokensPerParam = 12;

  double parameters = 0;          // of the matrices in blocks and of the head
  std::int64_t batch_tokens = 0;  // tokens of an update
  std::int64_t steps = 0;
  double rate_factor = 1;   // of all learning rates
  double width_factor = 1;  // of the rates of embeddings and head, beside rate_factor
  double weight_decay = 0;

  /// Returns 64 x depth, rounded up to whole heads.
  static std::int64_t hidden_size(std::int64_t depth) {
    return (64 * depth + kHeadDim - 1) / kHeadDim * kHeadDim;
  }
};

/// Returns the number of weights that multiply: those of the blocks and the head, without
/// embeddings, value embeddings and trained numbers of the residual stream. `config` must be
/// resolved.
double multiplied_parameters(const ModelConfig& config);

/// Returns the rule for a resolved model. If `batch_tokens` is above 0, updates have this number of
/// tokens.
DepthRule depth_rule(const ModelConfig& config, std::int64_t batch_tokens = 0);

}  // namespace trireme::model
