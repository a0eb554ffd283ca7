#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "model/block.hpp"
#include "model/experts/router_balance.hpp"
#include "model/stages/stages.hpp"

namespace trireme {

/// The stages of a pipeline that this rank holds, rising; the whole model is one.
using ModelStages = std::vector<StageRange>;

struct TransformerOptions {
  ops::Path path = ops::Path::fast;
  Recompute recompute = Recompute::none;
  std::uint64_t seed = 0;  // of dropout masks
  TensorGroup tensor = {};
  ContextGroup context = {};
  LoraConfig lora = {};  // on: adapters are trained, all else is frozen
  ExpertGroup experts = {};
};

/// What backward of one micro-batch through one stage needs; T / t tokens with sequence
/// parallelism.
struct ForwardTape {
  std::vector<LayerTape> blocks;
  std::shared_ptr<RouteMemo> routes;  // where blocks run again
  at::Tensor last;       // of a stage with the head until turn(): [B, T, D], the final norm's input
  at::Tensor rstd;       // and of that norm
  at::Tensor last_grad;  // then the gradient of that input,
  at::Tensor norm_grad;  // and of the norm's weight [D]
};

/// One use of a stage's weights: in a forward pass, or in a backward one.
struct StageUse {
  std::size_t stage = 0;  // of this rank's
  bool forward = true;
};

/// The decoder-only transformer as a chain of layers over registry weights, up to its hidden
/// states: which loss they serve is an objective's (objective/objective.hpp). Declares its
/// parameters, the head's too, at construction; the registry is allocated after that.
///
/// Of a pipeline it has some stages, one link after another; what lies between two stages are hidden
/// states [B, T, D], with sequence parallelism this rank's T / t tokens of them.
class Transformer {
 public:
  Transformer(ParamRegistry& registry, const ModelConfig& config, const ModelStages& stages,
              const TransformerOptions& options);
  /// The whole model.
  Transformer(ParamRegistry& registry, const ModelConfig& config,
              const TransformerOptions& options);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// After ParamRegistry::allocate: tables on the registry's device and dtype, units.
  void prepare();

  [[nodiscard]] const ModelStages& stages() const { return stages_; }

  /// The passes of an update, in their order: weights are gathered for them. Before the first one.
  void begin_update(const std::vector<StageUse>& uses);

  /// A stage's output: of one with the head the hidden states after the final norm, on every rank
  /// of tp. `in`: the output of the stage before; undefined for the first. Leaves on the tape what
  /// backward needs. Where the stage has the head, turn() must follow.
  at::Tensor forward(std::size_t stage, const Microbatch& given, const at::Tensor& in,
                     ForwardTape& tape);
  /// From forward to backward of a stage with the head; grad [B, T, D] is that of the hidden states,
  /// of which each rank of tp has the part of its vocabulary. The head's weights may go.
  void turn(ForwardTape& tape, const at::Tensor& grad);
  /// Adds all gradients of the stage's own trained parameters to the registry, and forms no other.
  /// `grad`: of the stage's output; of one with the head undefined. Returns that of its input;
  /// undefined for the first stage. Clears the tape.
  at::Tensor backward(std::size_t stage, const Microbatch& given, ForwardTape& tape,
                      const at::Tensor& grad);

  /// A stage's output without a tape: for validation, or as a reference, also between a forward and
  /// its backward.
  [[nodiscard]] at::Tensor output(std::size_t stage, const Microbatch& batch,
                                  const at::Tensor& in) const;

  /// The same of the whole model: hidden states.
  [[nodiscard]] at::Tensor hidden(const Microbatch& batch) const { return output(0, batch, {}); }

  /// Inference: hidden states [rows, D] after the final norm of the step's rows, or of those it keeps;
  /// keys and values of all go to the cache.
  [[nodiscard]] at::Tensor hidden_cached(const CachedStep& step, const KvCache& cache) const;
  /// Logits [rows, vocab] of hidden states [rows, D], in fp32 (fp64 of fp64).
  [[nodiscard]] at::Tensor logits(const at::Tensor& hidden) const;
  [[nodiscard]] KvCache make_cache(std::int64_t num_blocks) const;

  [[nodiscard]] const ModelConfig& config() const { return context_.config; }

  [[nodiscard]] ParamRegistry& registry() { return registry_; }

  [[nodiscard]] const ParamRegistry& registry() const { return registry_; }

  [[nodiscard]] const TensorGroup& tensor() const { return context_.tensor; }

  /// Of models with experts: what backward passes since the last reset have added.
  [[nodiscard]] RouterTally& router_tally() { return tally_; }

  /// The output matrix [vocab, D]: the embedding's where the two are tied. Of the last stage.
  [[nodiscard]] ParamId head_weight() const { return head_; }

  /// Whether this rank has the last stage.
  [[nodiscard]] bool has_head() const { return stages_.back().has_head; }

  /// Of a tied table of which the first and the last stage, on two ranks, hold a copy each: its
  /// unit, whose gradients these two ranks add up.
  [[nodiscard]] std::optional<std::size_t> table_in_two() const { return table_in_two_; }

 private:
  void declare_stage(const StageRange& stage);
  ParamId declare_table(const char* name, ParamSpec::Copies copies);
  /// A walk of one forward pass; returns that around it.
  UnitWeights::Walk begin_forward(std::size_t stage) const;
  /// Adds the units that a stage reads, in this order.
  void add_units(const StageUse& use, std::vector<std::size_t>& units) const;
  /// Blocks of a stage: [first, end) of blocks_.
  [[nodiscard]] IndexRange blocks_of(std::size_t stage) const;
  [[nodiscard]] at::Tensor embed(const Microbatch& batch) const;
  void embed_backward(const Microbatch& batch, const at::Tensor& grad);
  /// Rows of this rank's part of the embedding that the tokens read, and true where it lies
  /// elsewhere (undefined: nowhere).
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> table_rows(const at::Tensor& tokens) const;
  [[nodiscard]] at::Tensor final_norm(const at::Tensor& x) const;

  ParamRegistry& registry_;
  RouterTally tally_;
  LayerContext context_;
  ModelStages stages_;
  ParamId embedding_ = 0;
  ParamId norm_ = 0;
  ParamId head_ = 0;  // the embedding where the two are tied
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<ParamId> first_weights_;  // of each block
  std::size_t embedding_unit_ = 0;
  std::vector<std::size_t> block_units_;
  std::vector<std::size_t> head_units_;
  std::optional<std::size_t> table_in_two_;
};

}  // namespace trireme
