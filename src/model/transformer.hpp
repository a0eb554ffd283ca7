#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "model/block.hpp"
#include "model/embedding_output.hpp"
#include "model/experts/router_balance.hpp"
#include "model/fp8_scaling.hpp"
#include "model/stages/stages.hpp"

namespace trireme::model {

/// The pipeline stages that this rank holds, in ascending order. Without pp it is the whole model.
using ModelStages = std::vector<StageRange>;

struct TransformerOptions {
  ops::Path path = ops::Path::fast;
  parallel::Recompute recompute = parallel::Recompute::none;
  std::uint64_t seed = 0;  // for dropout masks
  parallel::TensorGroup tensor = {};
  parallel::ContextGroup context = {};
  LoraConfig lora = {};  // if on: adapters are trained, all other weights are frozen
  parallel::ExpertGroup experts = {};
  Fp8Mode fp8 = Fp8Mode::off;  // training passes only; others use the dtype of weights
};

/// The saved activations of one micro-batch in one stage (T / t tokens with sequence parallelism).
struct StageActivations {
  LayerActivations embedding;  // only with model.embed_norm or model.smear
  LayerActivations output;     // only if the final norm reads earlier hidden states
  std::vector<LayerActivations> blocks;
  std::shared_ptr<parallel::RouteMemo> routes;  // only if blocks are recomputed
  at::Tensor last;  // last stage, until backward_final_norm(): input of the final norm [B, T, D]
  at::Tensor rstd;  // last stage, until backward_final_norm(): statistics of that norm
  at::Tensor last_grad;  // last stage, after backward_final_norm(): gradient of the norm's input
  // last stage, after backward_final_norm(): gradient of the norm's weight
  at::Tensor norm_grad;
};

struct StageUse {
  std::size_t stage = 0;  // local stage index
  bool forward = true;
};

/// A decoder-only transformer: a layer stack over registry weights that computes hidden states. The
/// loss belongs to an objective (objective/objective.hpp). The constructor declares all parameters,
/// including the head; the registry is allocated afterwards.
///
/// With pipeline parallelism an object holds only some stages. Stages exchange hidden states [B, T,
/// D]; with sequence parallelism, each rank has T / t tokens of them.
class Transformer {
 public:
  Transformer(parallel::ParamRegistry& registry, const ModelConfig& config,
              const ModelStages& stages, const TransformerOptions& options);
  Transformer(parallel::ParamRegistry& registry, const ModelConfig& config,
              const TransformerOptions& options);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// Called after ParamRegistry::allocate. Computes rotary tables and looks up the FSDP units.
  void prepare();

  [[nodiscard]] const ModelStages& stages() const { return stages_; }

  /// Announces all passes of an update in their order, so that weights are gathered in time. Call
  /// this function before the first pass.
  void begin_update(const std::vector<StageUse>& uses);

  [[nodiscard]] Fp8Scaling& fp8() { return fp8_; }

  [[nodiscard]] const Fp8Scaling& fp8() const { return fp8_; }

  /// Limits the windows of all layers in later training passes; 0: the windows of the model. Call it
  /// between updates, with the same value on all ranks.
  void limit_windows(std::int64_t window) { context_.training_window = window; }

  [[nodiscard]] std::int64_t training_window() const { return context_.training_window; }

  [[nodiscard]] ops::Path path() const { return context_.path; }

  /// Returns true if training passes draw dropout masks.
  [[nodiscard]] bool has_dropout() const {
    return context_.config.dropout > 0 || context_.config.attention_dropout > 0 ||
           context_.lora.dropout > 0;
  }

  /// Computes the output of a stage from `in`, the previous stage's output (undefined for the first
  /// stage). If the stage has the head, the output is the hidden states after the final norm, on
  /// every rank of tp, and backward_final_norm() must be called before backward(). Stores the
  /// activations for backward in `saved`.
  at::Tensor forward(std::size_t stage, const parallel::Microbatch& given, const at::Tensor& in,
                     StageActivations& saved);
  /// Computes the backward of the final norm, between forward and backward of the last stage.
  /// `grad` [B, T, D] is the gradient of the hidden states; each rank of tp has the partial
  /// gradient of its vocabulary shard. The head's weights may be freed afterwards.
  void backward_final_norm(StageActivations& saved, const at::Tensor& grad);
  /// Adds the gradients of the stage's trainable parameters to the registry. `grad` is the gradient
  /// of the stage's output (undefined for the stage with the head). Returns the gradient of the
  /// stage's input (undefined for the first stage). Clears the saved activations.
  at::Tensor backward(std::size_t stage, const parallel::Microbatch& given, StageActivations& saved,
                      const at::Tensor& grad);

  /// Computes a stage's output without saving activations, for validation or as a reference model.
  /// It may run between a forward and its backward.
  [[nodiscard]] at::Tensor output(std::size_t stage, const parallel::Microbatch& batch,
                                  const at::Tensor& in) const;

  [[nodiscard]] at::Tensor hidden(const parallel::Microbatch& batch) const {
    return output(0, batch, {});
  }

  /// Inference, with one stage on each rank: returns hidden states [rows, D] after the final norm of
  /// the step's rows, or of the rows in `kept`. A stage without the head returns its output for all
  /// rows. Stores the keys and values of all rows in the cache.
  [[nodiscard]] at::Tensor hidden_cached(const CachedStep& step, const KvCache& cache) const;
  /// Computes logits [rows, vocab] of hidden states [rows, D], in fp32 (fp64 for fp64). Only in the
  /// stage with the head.
  [[nodiscard]] at::Tensor logits(const at::Tensor& hidden) const;
  [[nodiscard]] KvCache make_cache(std::int64_t num_blocks) const;
  /// Inference: rounds the matrices of linear layers and the head to int8 with one scale per output
  /// channel. Then hidden_cached() and logits() read int8. The registry gets the rounded values, so
  /// that all other passes compute the same function; a tied embedding has those of the head.
  /// Unchanged: norms, biases, routers, gates, adapters and other embeddings. Call it after the
  /// weights are set. Collective over tp; the values do not depend on the number of ranks.
  void use_int8_weights();

  /// Returns the int8 copy of a weight; null if it has none.
  [[nodiscard]] const ops::Int8Matrix* int8_weight(parallel::ParamId first) const {
    return context_.int8.find(first);
  }

  [[nodiscard]] const ModelConfig& config() const { return context_.config; }

  /// Returns the different masks of the layers.
  [[nodiscard]] const std::vector<ops::AttentionMask>& attention_masks() const { return masks_; }

  [[nodiscard]] parallel::ParamRegistry& registry() { return registry_; }

  [[nodiscard]] const parallel::ParamRegistry& registry() const { return registry_; }

  [[nodiscard]] const parallel::TensorGroup& tensor() const { return context_.tensor; }

  /// Models with experts: returns the routing statistics of all backward passes since the last
  /// reset.
  [[nodiscard]] RouterStatistics& router_statistics() { return statistics_; }

  /// Returns the output matrix [vocab, D] of the last stage: the embedding if the two are tied.
  [[nodiscard]] parallel::ParamId head_weight() const { return head_; }

  [[nodiscard]] bool has_head() const { return stages_.back().has_head; }

  /// If the embedding is tied and its two copies are on different ranks (first and last stage),
  /// returns the FSDP unit of the local copy. The two ranks add up the gradients of both copies.
  [[nodiscard]] std::optional<std::size_t> replicated_embedding() const {
    return replicated_embedding_;
  }

 private:
  void declare_stage(const StageRange& stage);
  void declare_positions();
  parallel::ParamId declare_table(parallel::ParamSpec::Table table,
                                  parallel::ParamSpec::Copies copies);
  /// Starts the walk of one forward pass. Returns the walk that it interrupts.
  parallel::UnitWeights::Walk begin_forward(std::size_t stage) const;
  /// Appends the FSDP units that a stage reads, in order of use.
  void add_units(const StageUse& use, std::vector<std::size_t>& units) const;
  [[nodiscard]] parallel::IndexRange blocks_of(std::size_t stage) const;
  /// Returns the output of the embedding. With `saved`, it saves the activations for backward.
  [[nodiscard]] at::Tensor embed(const parallel::Microbatch& batch, StageActivations* saved) const;
  /// Returns x times model.embedding_scale.
  [[nodiscard]] at::Tensor scaled(const at::Tensor& x) const;
  /// Returns the rows of the embedding of tokens; 0 for tokens below 0.
  [[nodiscard]] at::Tensor looked_up(const at::Tensor& tokens) const;
  /// Returns the tokens before those of a micro-batch.
  [[nodiscard]] static at::Tensor previous_of(const parallel::Microbatch& batch);
  void embed_backward(const parallel::Microbatch& batch, StageActivations& saved,
                      const at::Tensor& grad);
  /// Returns x plus the learned positions, or x itself without them. `positions`: of this rank's
  /// tokens.
  [[nodiscard]] at::Tensor with_positions(const at::Tensor& x, const at::Tensor& positions) const;
  /// Adds the gradients of rows of a table. The caller reports the table as complete.
  void add_row_gradients(parallel::ParamId table, const at::Tensor& rows, const at::Tensor& grads);
  /// Adds the gradient of looked_up() to the gradient of the embedding.
  void add_embedding_gradient(const at::Tensor& tokens, const at::Tensor& grad);
  /// Returns the local rows of the embedding that the tokens read, and a mask of tokens with
  /// their row on another rank (undefined if there are none).
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> table_rows(const at::Tensor& tokens) const;
  [[nodiscard]] at::Tensor final_norm(const at::Tensor& x) const;
  [[nodiscard]] bool trains_norm() const;

  parallel::ParamRegistry& registry_;
  RouterStatistics statistics_;
  Fp8Scaling fp8_;
  LayerContext context_;
  ModelStages stages_;
  std::vector<ops::AttentionMask> masks_;
  parallel::ParamId embedding_ = 0;
  parallel::ParamId positions_ = 0;  // model.position = learned only
  parallel::WeightRef norm_;
  parallel::ParamId head_ = 0;  // the embedding if the two are tied
  std::optional<EmbeddingOutput> embedding_output_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::optional<ResidualMix> output_mix_;
  std::vector<parallel::ParamId> first_weights_;  // first parameter of each block
  std::size_t embedding_unit_ = 0;
  std::size_t positions_unit_ = 0;
  std::vector<std::size_t> block_units_;
  std::vector<parallel::ParamId> head_parts_;  // parameters in the units of the head
  std::vector<std::size_t> head_units_;
  std::optional<std::size_t> replicated_embedding_;
};

}  // namespace trireme::model
