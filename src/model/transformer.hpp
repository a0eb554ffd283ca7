#pragma once
#include <memory>
#include <vector>

#include "model/block.hpp"

namespace trireme {

/// Which part of the model this rank holds: a pipeline stage; the whole model on one stage.
struct ModelPart {
  std::int64_t first_layer = 0;
  std::int64_t end_layer = 0;
  bool has_embedding = true;
  bool has_head = true;

  static ModelPart whole(const ModelConfig& config) { return {0, config.num_layers, true, true}; }
};

struct TransformerOptions {
  ops::Path path = ops::Path::fast;
  Recompute recompute = Recompute::none;
  std::uint64_t seed = 0;  // of dropout masks
  TensorGroup tensor = {};
  ContextGroup context = {};
  LoraConfig lora = {};  // on: adapters are trained, all else is frozen
};

/// What backward of one micro-batch needs; T / t tokens with sequence parallelism.
struct ForwardTape {
  std::vector<LayerTape> blocks;
  at::Tensor last;  // [B, T, D], what the final norm is of
  at::Tensor rstd;  // of that norm
};

/// The decoder-only transformer as a chain of layers over registry weights, up to its hidden
/// states: which loss they serve is an objective's (objective/objective.hpp). Declares its
/// parameters, the head's too, at construction; the registry is allocated after that.
class Transformer {
 public:
  Transformer(ParamRegistry& registry, const ModelConfig& config, const ModelPart& part,
              const TransformerOptions& options);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// After ParamRegistry::allocate: tables on the registry's device and dtype, units.
  void prepare();

  /// Hidden states [B, T, D] after the final norm, on every rank of tp; leaves on the tape what
  /// backward needs.
  at::Tensor forward(const Microbatch& batch, ForwardTape& tape);
  /// Adds all gradients of the model's own trained parameters to the registry, and forms no other;
  /// grad [B, T, D] is that of
  /// the hidden states, of which each rank of tp has the part of its vocabulary. Clears the tape.
  void backward(const Microbatch& batch, ForwardTape& tape, const at::Tensor& grad);

  /// Hidden states without a tape: for validation, or as a reference, also between a forward and
  /// its backward.
  [[nodiscard]] at::Tensor hidden(const Microbatch& batch) const;
  /// Inference: hidden states [rows, D] after the final norm of the step's rows, or of those it keeps;
  /// keys and values of all go to the cache.
  [[nodiscard]] at::Tensor hidden_cached(const CachedStep& step, const KvCache& cache) const;
  /// Logits [rows, vocab] of hidden states [rows, D], in fp32 (fp64 of fp64).
  [[nodiscard]] at::Tensor logits(const at::Tensor& hidden) const;
  [[nodiscard]] KvCache make_cache(std::int64_t num_blocks) const;

  [[nodiscard]] const ModelConfig& config() const { return context_.config; }

  [[nodiscard]] ParamRegistry& registry() { return registry_; }

  [[nodiscard]] const TensorGroup& tensor() const { return context_.tensor; }

  /// The output matrix [vocab, D]: the embedding's where the two are tied.
  [[nodiscard]] ParamId head_weight() const { return head_; }

 private:
  /// The units in the order in which one micro-batch reads them.
  UnitWeights::Walk begin_walk(bool training) const;
  [[nodiscard]] at::Tensor embed(const Microbatch& batch) const;
  void embed_backward(const Microbatch& batch, const at::Tensor& grad);
  /// Rows of this rank's part of the embedding that the tokens read, and true where it lies
  /// elsewhere (undefined: nowhere).
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> table_rows(const at::Tensor& tokens) const;
  [[nodiscard]] at::Tensor final_norm(const at::Tensor& x) const;

  ParamRegistry& registry_;
  LayerContext context_;
  ModelPart part_;
  ParamId embedding_ = 0;
  ParamId norm_ = 0;
  ParamId head_ = 0;  // the embedding where the two are tied
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<ParamId> first_weights_;  // of each block
  std::size_t embedding_unit_ = 0;
  std::vector<std::size_t> block_units_;
  std::vector<std::size_t> head_units_;
};

}  // namespace trireme
