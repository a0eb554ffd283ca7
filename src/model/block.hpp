#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "model/experts/experts.hpp"
#include "model/kv_cache.hpp"
#include "model/layer.hpp"
#include "model/layer_context.hpp"
#include "model/residual_mix.hpp"
#include "model/value_embedding.hpp"
#include "model/value_residual.hpp"
#include "model/weighted.hpp"

namespace trireme::model {

/// The query heads [query.begin, query.end) that a rank holds, the key heads that they read, and
/// the key head of each query head.
struct LocalHeads {
  parallel::IndexRange query;
  parallel::IndexRange key;
  std::vector<std::int64_t> key_of_query;  // local index; empty: evenly divided
};

LocalHeads local_heads(const ModelConfig& config, int ranks, int rank);

/// A linear that shares its input with others, and the split of its weight over the ranks of tp.
struct AdaptedLinear {
  BlockLinear which;
  parallel::DimSplit split;
};

/// Declares LoRA adapters for the targets among `linears`, which are adjacent in one matrix:
///   "<prefix><module>.lora_A.weight" [rank, in], like peft: uniform within 1 / sqrt(in),
///   the result of kaiming_uniform with a = sqrt 5
///   "<prefix><module>.lora_B.weight" [out, rank], zeros
///
/// With tensor parallelism, the factor that contains the split dimension of W is split the same
/// way. The other factor is replicated and each rank computes a partial gradient. The adapter terms
/// need no collective, because they are added to tensors that the linear reduces anyway.
weighted::Adapters declare_adapters(parallel::ParamRegistry& registry, const LoraConfig& config,
                                    const ModelConfig& model, const parallel::TensorGroup& tensor,
                                    const std::string& prefix,
                                    std::span<const AdaptedLinear> linears);

/// A transformer block: h = x + Attention(Norm(x)), then h + MLP(Norm(h)). The MLP is one dense MLP,
/// gated or plain, or Experts. With model.parallel_residual, both read x. Attention has GQA, RoPE
/// (rotate-half) and an optional QK norm. If model.pre_norms is false, both norms are absent. x is
/// the input with its residual terms.
///
/// Weights in storage order: input norm; q, k, v as one matrix; o; post norm; gate, up as one
/// matrix; down (or the weights of Experts); q norm, k norm; biases of these matrices; norms of the
/// outputs of attention and MLP; scalars of residual terms; value embedding and its gate; scalar
/// of the value residual. With LoRA, these weights are frozen, and the adapters follow.
class Block : public Layer {
 public:
  /// Declares the weights. `index` is the global layer number.
  Block(parallel::ParamRegistry& registry, const LayerContext& context, std::int64_t index);

  [[nodiscard]] at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& x,
                                   std::span<const at::Tensor> sources) const override;

  /// Inference: computes the block's output for x [rows, D]. Stores the keys and values of the rows
  /// in `cache`, then attends to the cache. Returns the rows listed in `kept`, or all rows if
  /// `kept` is undefined.
  [[nodiscard]] at::Tensor forward_cached(const CachedStep& step, const at::Tensor& x,
                                          std::span<const at::Tensor> sources,
                                          const ops::PagedCache& cache,
                                          const at::Tensor& kept) const;

  /// Returns the matrices of attention, MLP and experts.
  [[nodiscard]] std::vector<parallel::WeightRef> linears() const;

 private:
  void declare_base();
  void declare_biases();
  void declare_post_norms();
  parallel::WeightRef declare_qk_norm(const char* name, std::int64_t size, bool partial,
                                      const std::optional<parallel::DimSplit>& split = {});
  void declare_lora();
  /// Returns the settings of one call of a matrix: adapters, their dropout, fp8. `first_feature` is
  /// the global index of this rank's first feature of the adapter input.
  [[nodiscard]] weighted::AdaptersUse use_of(const parallel::Microbatch& batch,
                                             const weighted::Adapters& adapters, Fp8Linear which,
                                             std::int64_t first_feature = 0) const;
  /// Computes qkv [B, T, (heads + 2 kv_heads) D] from the block input.
  [[nodiscard]] at::Tensor project(const parallel::Microbatch& batch, const at::Tensor& x) const;
  /// Returns qkv with the norm over all heads, or qkv itself without this norm.
  [[nodiscard]] at::Tensor with_whole_norm(const at::Tensor& qkv) const;
  [[nodiscard]] ops::QueryKeyValue split_heads(const parallel::Microbatch& batch,
                                               const at::Tensor& qkv) const;
  /// Computes the attention output [B, T, heads D] from qkv.
  [[nodiscard]] at::Tensor attention_core(const parallel::Microbatch& batch,
                                          const at::Tensor& qkv) const;
  [[nodiscard]] at::Tensor finish(const parallel::Microbatch& batch, const at::Tensor& x,
                                  const Recomputed& attended) const;
  /// Returns y plus the bias, or y itself without a bias.
  [[nodiscard]] at::Tensor with_bias(const at::Tensor& y,
                                     const std::optional<parallel::WeightRef>& bias) const;
  /// Returns the norm of y, or y itself without a norm. `late` is that of weighted::norm.
  [[nodiscard]] at::Tensor with_norm(const at::Tensor& y,
                                     const std::optional<parallel::WeightRef>& norm,
                                     const ops::LateResultPtr& late = {}) const;
  /// Returns true if a matrix saves fp8 codes of its input.
  [[nodiscard]] bool saves_codes(Fp8Linear which) const;
  /// Returns the object through which backward of a norm gives its result to a matrix, or null if
  /// the matrix needs its input in another form or backward computes it otherwise.
  [[nodiscard]] ops::LateResultPtr late_norm(Fp8Linear which) const;
  /// Computes the hidden MLP values, for inference.
  [[nodiscard]] at::Tensor hidden_of(const at::Tensor& gate_up) const;
  /// Computes the MLP of `normed`, which is the norm of `sum`. `late_normed` is null or gives
  /// `normed` in backward.
  [[nodiscard]] at::Tensor mlp(const parallel::Microbatch& batch, const at::Tensor& sum,
                               const at::Tensor& normed,
                               const ops::LateResultPtr& late_normed) const;
  [[nodiscard]] at::Tensor attend(const parallel::Microbatch& batch,
                                  const ops::QueryKeyValue& heads) const;
  /// Returns the keys that queries of the batch see, for one pass.
  [[nodiscard]] ops::AttentionSetup attention_of(const parallel::Microbatch& batch) const;
  /// Returns the rotary tables of this layer.
  [[nodiscard]] const ops::RopeTables& rope() const;
  [[nodiscard]] at::Tensor plain_attention(const parallel::Microbatch& batch,
                                           const ops::QueryKeyValue& heads) const;
  /// Returns a function that recomputes the gathered norm of x (without a norm: the gathered x),
  /// for selective activation checkpointing.
  [[nodiscard]] RecomputeFn recompute_norm(const at::Tensor& x,
                                           const std::optional<parallel::WeightRef>& norm) const;

  /// Returns the initial values of a matrix.
  [[nodiscard]] parallel::InitDistribution init_of(BlockLinear which) const;

  const LayerContext& context_;
  std::int64_t index_;
  ops::Activation activation_;
  LocalHeads heads_;
  parallel::ParamRegistry& registry_;
  std::optional<parallel::WeightRef> input_norm_;
  parallel::WeightRef qkv_;
  parallel::WeightRef output_;
  std::optional<parallel::WeightRef> post_norm_;
  parallel::WeightRef gate_up_;  // dense MLP only; without gate: up
  parallel::WeightRef down_;
  std::unique_ptr<Experts> experts_;  // instead of the dense MLP
  weighted::QkNormWeights qk_norms_;
  std::optional<parallel::WeightRef> qkv_bias_;
  std::optional<parallel::WeightRef> output_bias_;
  std::optional<parallel::WeightRef> gate_up_bias_;
  std::optional<parallel::WeightRef> down_bias_;
  std::optional<parallel::WeightRef> attention_output_norm_;
  std::optional<parallel::WeightRef> mlp_output_norm_;
  std::optional<ResidualMix> mix_;
  std::optional<ValueEmbedding> values_;
  std::optional<ValueResidual> first_values_;
  weighted::Adapters qkv_adapters_;
  weighted::Adapters output_adapters_;
  weighted::Adapters gate_up_adapters_;
  weighted::Adapters down_adapters_;
};

/// Applies dropout on the residual stream; returns x itself if dropout is off. `op` is the index of
/// the dropout in the layer.
at::Tensor residual_dropout(const LayerContext& context, const parallel::Microbatch& batch,
                            const at::Tensor& x, std::int64_t layer, std::uint32_t op);

}  // namespace trireme::model
