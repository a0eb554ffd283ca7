#pragma once
#include <cstdint>
#include <vector>

#include "model/config.hpp"

namespace trireme::model {

/// ResidualTerm::source of the output of the embedding; other sources are layers.
constexpr std::int64_t kEmbeddingSource = -1;
/// Source of the values of the first layer, which ValueResidual reads.
constexpr std::int64_t kFirstValues = -2;

/// An earlier hidden state that a layer also reads: the residual stream x becomes
/// scale * x + sign * factor * source, where factor and scale are trained numbers.
struct ResidualTerm {
  std::int64_t source = kEmbeddingSource;  // the layer that the term reads
  const char* factor_name = "";            // name of the parameter, without the prefix of its layer
  double factor_init = 0;
  double sign = 1;
  const char* scale_name = nullptr;  // null: x is not scaled
  double scale_init = 1;
};

/// Returns the terms that are added before a layer, in order. `layer` = num_layers: the terms before
/// the final norm. Model, checkpoint, cost formulas and layout checks read this function.
/// Sources: modded-nanoGPT, record 11 (2024-11-10), for U-net skips and residual scalars;
/// nanochat (commit 92d63d4) for backout and initial values.
std::vector<ResidualTerm> residual_terms(const ModelConfig& config, std::int64_t layer);

/// Returns true if a layer, or the final norm, reads hidden states of earlier layers.
bool has_residual_terms(const ModelConfig& config);

/// Returns the numbers of elements that gates of this model read from each token.
std::int64_t value_gate_inputs(const ModelConfig& config);
std::int64_t smear_gate_inputs(const ModelConfig& config);

}  // namespace trireme::model
