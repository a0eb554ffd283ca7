#pragma once
#include <optional>

#include "model/layer.hpp"
#include "model/layer_context.hpp"
#include "model/weighted.hpp"

namespace trireme::model {

/// The computation between the rows of the embedding and the first layer: an RMSNorm without
/// weights (model.embed_norm), and the smear, which adds a gated part of the previous token:
///   y_t = n_t + s sigmoid(w n_t[:C]) n_(t-1), with the norm n, a trained number s, and C elements
/// Source of the smear: modded-nanoGPT, record 34; nanochat (commit 92d63d4).
class EmbeddingOutput : public Layer {
 public:
  /// Declares the weights of the smear: model.smear_gate.weight [C], model.smear_scalar [1].
  EmbeddingOutput(parallel::ParamRegistry& registry, const LayerContext& context);

  /// Returns true if forward() computes nothing.
  [[nodiscard]] bool is_identity() const { return !context_.config.embed_norm && !smears(); }

  [[nodiscard]] bool smears() const { return smear_.has_value(); }

  /// `x` [.., D] are rows of the embedding. With smear, sources[0] are the rows of the previous
  /// tokens; the row of a token without a predecessor is 0.
  [[nodiscard]] at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& x,
                                   std::span<const at::Tensor> sources) const override;

 private:
  [[nodiscard]] at::Tensor normed(const at::Tensor& x) const;

  const LayerContext& context_;
  parallel::ParamRegistry& registry_;
  std::optional<weighted::SmearWeights> smear_;
};

}  // namespace trireme::model
