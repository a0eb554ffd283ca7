#pragma once
#include <optional>
#include <span>
#include <string>

#include "model/layer_context.hpp"
#include "model/weighted.hpp"

namespace trireme::model {

/// Mixes the values of the first layer into the values of a later layer (model.value_residual):
/// v becomes (1 - z) v + z w, where w are the values of the first layer and z is a trained number
/// that begins at 0.5. The values w are those that attention of the first layer reads, with bias and
/// value embedding. The first layer returns them beside its output, see joined().
/// Sources: Zhou et al., "Value Residual Learning", 2024; modded-nanoGPT, record 9 (2024-11-06).
class ValueResidual {
 public:
  /// Declares "<prefix>self_attn.value_scalar" [1], except in the first layer.
  ValueResidual(parallel::ParamRegistry& registry, const LayerContext& context, std::int64_t layer,
                const std::string& prefix);

  /// Returns the sources of the layer without the values of the first layer, which are the last one.
  [[nodiscard]] std::span<const at::Tensor> terms_of(std::span<const at::Tensor> sources) const {
    return sources.first(sources.size() - (factor_ ? 1 : 0));
  }

  /// Returns queries, keys and mixed values [.., (heads + 2 kv_heads) D]; qkv itself in the first
  /// layer.
  [[nodiscard]] at::Tensor mixed(const at::Tensor& qkv, std::span<const at::Tensor> sources) const;

  /// Returns the result of the layer. In the first layer, the elements of y are followed by those of
  /// the values in qkv, as one vector (ResidualSources::put_output).
  [[nodiscard]] at::Tensor joined(const at::Tensor& y, const at::Tensor& qkv) const;

 private:
  parallel::ParamRegistry& registry_;
  std::optional<weighted::MixWeights> factor_;
  std::int64_t width_ = 0;  // elements of the values of a token on this rank
  bool gives_ = false;
};

}  // namespace trireme::model
