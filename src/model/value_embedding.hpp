#pragma once
#include <string>

#include "model/layer_context.hpp"
#include "model/weighted.hpp"
#include "parallel/microbatch.hpp"

namespace trireme::model {

/// A second embedding of a layer, which is added to the values of its attention (model.value_embeddings):
///   v_h += 3 sigmoid(W_h x[:C]) table[token]_h for each key head h, with the input x of the attention
/// The table is split over tp by key heads, like the values. Source: modded-nanoGPT, record 14;
/// nanochat (commit 92d63d4).
class ValueEmbedding {
 public:
  /// Declares "<prefix>self_attn.value_embed.weight" [kv_heads, vocab, D] and
  /// "<prefix>self_attn.value_gate.weight" [kv_heads, C].
  ValueEmbedding(parallel::ParamRegistry& registry, const LayerContext& context,
                 const std::string& prefix);

  /// Returns qkv [B, T, (heads + 2 kv_heads) D] with the embedding added to the values. `x` is the
  /// input of the attention: the tokens of the residual stream on this rank.
  [[nodiscard]] at::Tensor added(const parallel::Microbatch& batch, const at::Tensor& x,
                                 const at::Tensor& qkv) const;
  /// Inference: the same for rows x [rows, D], qkv [rows, ..] and tokens [rows]. Changes qkv.
  void add_cached(const at::Tensor& tokens, const at::Tensor& x, const at::Tensor& qkv) const;

 private:
  const LayerContext& context_;
  parallel::ParamRegistry& registry_;
  parallel::WeightRef table_;
  parallel::WeightRef gate_;
};

}  // namespace trireme::model
