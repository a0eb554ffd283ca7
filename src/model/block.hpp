#pragma once
#include <memory>
#include <span>
#include <string>

#include "model/experts/experts.hpp"
#include "model/kv_cache.hpp"
#include "model/layer.hpp"
#include "model/layer_context.hpp"
#include "model/weighted.hpp"

namespace trireme {

/// The heads of a rank: query heads [query.begin, query.end) of all, the key heads that they read,
/// and which of these each reads.
struct HeadShare {
  IndexRange query;
  IndexRange key;
  std::vector<std::int64_t> key_of_query;  // among this rank's; empty: an equal number reads each
};

HeadShare head_share(const ModelConfig& config, int ranks, int rank);

/// One of the linears that share an input, and how its weight is cut over the ranks of tp.
struct AdaptedLinear {
  BlockLinear which;
  DimSplit split;
};

/// Declares the adapters of those of `linears`, neighbours in one matrix, that are targets:
/// "<prefix><module>.lora_A.weight" [rank, in] with values as peft draws them (uniform within 1 /
/// sqrt(in), what kaiming_uniform gives with a = sqrt 5), then "<prefix><module>.lora_B.weight"
/// [out, rank] of zeros.
///
/// With tensor parallelism the side that meets the cut dimension of W is cut alike; of the other
/// every rank has all and forms a part of the gradient. No term needs a sum of its own: it is added
/// to what the linear's ranks add up or enter anyway.
weighted::Adapters declare_adapters(ParamRegistry& registry, const LoraConfig& config,
                                    const ModelConfig& model, const TensorGroup& tensor,
                                    const std::string& prefix,
                                    std::span<const AdaptedLinear> linears);

/// One transformer block: x + Attention(RMSNorm(x)), then + gated MLP(RMSNorm(.)), one or many
/// (Experts). GQA, RoPE (rotate-half), optional QK-norm. Weights in storage order: input norm; q, k, v
/// as one matrix; o; post norm; gate, up as one matrix; down (or the experts'); q norm, k norm. With
/// LoRA all these are frozen, and adapters follow.
class Block : public Layer {
 public:
  /// Declares its weights. `index` is the global number of the layer.
  Block(ParamRegistry& registry, const LayerContext& context, std::int64_t index);

  [[nodiscard]] at::Tensor forward(const Microbatch& batch, const at::Tensor& x) const override;

  /// Inference: x [rows, D] of the step's rows, attending to `cache` and adding to it. Returns rows
  /// `kept`; undefined: all.
  [[nodiscard]] at::Tensor forward_cached(const CachedStep& step, const at::Tensor& x,
                                          const ops::PagedCache& cache,
                                          const at::Tensor& kept) const;

 private:
  void declare_base();
  void declare_lora();
  /// `first_feature`: global index of the first that this rank has of the adapters' input.
  [[nodiscard]] weighted::AdaptersUse with_adapters(const Microbatch& batch,
                                                    const weighted::Adapters& adapters,
                                                    std::uint32_t dropout_op,
                                                    std::int64_t first_feature = 0) const;
  /// The input to [B, T, (heads + 2 kv_heads) D].
  [[nodiscard]] at::Tensor project(const Microbatch& batch, const at::Tensor& x) const;
  [[nodiscard]] ops::QueryKeyValue split_heads(const Microbatch& batch,
                                               const at::Tensor& qkv) const;
  /// From qkv to attention's result [B, T, heads D].
  [[nodiscard]] at::Tensor attention_core(const Microbatch& batch, const at::Tensor& qkv) const;
  /// From attention's result to the block's.
  [[nodiscard]] at::Tensor finish(const Microbatch& batch, const at::Tensor& x,
                                  const Recomputed& attended) const;
  /// The gated MLP of normed tokens; `sum`: what the norm was of.
  [[nodiscard]] at::Tensor mlp(const Microbatch& batch, const at::Tensor& sum,
                               const at::Tensor& normed) const;
  /// Attention of this rank's heads.
  [[nodiscard]] at::Tensor attend(const Microbatch& batch, const ops::QueryKeyValue& heads) const;
  [[nodiscard]] at::Tensor plain_attention(const Microbatch& batch,
                                           const ops::QueryKeyValue& heads) const;
  /// Under selective recompute: the norm of x, entered into tensor parallelism, once more.
  [[nodiscard]] Again normed_again(const at::Tensor& x, WeightRef norm) const;
  /// And the MLP's hidden values.
  [[nodiscard]] Again activated_again(const at::Tensor& gate_up) const;

  const LayerContext& context_;
  std::int64_t index_;
  ops::Activation activation_;
  HeadShare heads_;
  ParamRegistry& registry_;
  WeightRef input_norm_;
  WeightRef qkv_;
  WeightRef output_;
  WeightRef post_norm_;
  WeightRef gate_up_;  // of a dense MLP
  WeightRef down_;
  std::unique_ptr<Experts> experts_;  // in its place
  weighted::QkNormWeights qk_norms_;
  weighted::Adapters qkv_adapters_;
  weighted::Adapters output_adapters_;
  weighted::Adapters gate_up_adapters_;
  weighted::Adapters down_adapters_;
};

/// Dropout of the residual stream; returns x itself when it is off.
/// `op` numbers the dropouts of a layer.
at::Tensor residual_dropout(const LayerContext& context, const Microbatch& batch,
                            const at::Tensor& x, std::int64_t layer, std::uint32_t op);

}  // namespace trireme
