#include "train/cost/memory_formula.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "model/residual_terms.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/cost/rank_units.hpp"
#include "train/cost/rank_widths.hpp"
#include "train/cost/state_bytes.hpp"

namespace trireme::train {
namespace {

/// Returns the largest number of gradient elements in unsharded units at one time: the unit that
/// backward fills, the unit that is being reduced (at the start of a pass the last unit of
/// the previous pass), and the units that are filled during the whole pass: a tied embedding and
/// small parameters. Not defined for a pipeline.
std::int64_t grad_peak_elements(const UpdateFacts& facts, const RankUnits& units) {
  if (!facts.grads_leave_each_pass()) return 0;
  const std::vector<std::int64_t>& elements = units.elements;

  struct Leaving {
    std::int64_t elements;
    bool filled_from_start;
  };

  std::vector<Leaving> order;
  if (facts.lora.on()) {
    for (const std::int64_t adapters : units.trained()) order.push_back({adapters, false});
  } else {
    for (std::size_t unit = units.walked; unit-- > 1;) order.push_back({elements[unit], false});
    if (elements.size() > units.walked) order.push_back({elements.back(), true});
    order.push_back({elements.front(), facts.model.tie_embeddings});
  }
  std::erase_if(order, [](const Leaving& one) { return one.elements == 0; });
  std::int64_t filled = 0;  // elements of units that are filled from the start and not reduced yet
  for (const Leaving& one : order) filled += one.filled_from_start ? one.elements : 0;
  std::int64_t waiting = facts.micro_steps > 1 ? order.back().elements : 0;
  std::int64_t peak = 0;
  for (const Leaving& one : order) {
    peak = std::max(peak, waiting + filled + (one.filled_from_start ? 0 : one.elements));
    filled -= one.filled_from_start ? one.elements : 0;
    waiting = one.elements;
  }
  return peak;
}

/// The saved activations of a block for one micro-batch on one rank: its input, queries, keys and
/// values before and after rotation, the attention output, the residual sum, gate, up, and row
/// statistics. Backward computes the normalized inputs of matrices and the product of gate and up
/// again, unless they are saved in another form (of_normed, of_mlp). Selective activation
/// checkpointing keeps the inputs of cheap operations, full checkpointing only the input of the
/// block. With LoRA, inputs of matrices without adapters are not saved, and each adapter saves its
/// inner product.
class BlockActivations {
 public:
  BlockActivations(const UpdateFacts& facts, int rank)
      : facts_(facts),
        coords_(coords_of(facts, rank)),
        element_(facts.compute_size()),
        tokens_(facts.tokens()),
        rows_(facts.stream_rows()),
        adapters_(adapter_elements(facts, coords_.tp)),
        here_(rank_widths(facts, coords_)) {}

  static constexpr std::int64_t kStatistic = 4;

  /// Returns the bytes of statistics that a norm saves per token: LayerNorm also saves the mean.
  static std::int64_t norm_statistics(const model::ModelConfig& m) {
    return (m.layer_norm() ? 2 : 1) * kStatistic;
  }

  [[nodiscard]] const RankWidths& widths() const { return here_; }

  [[nodiscard]] std::int64_t bytes(std::int64_t layer) const {
    const model::ModelConfig& m = facts_.model;
    const bool experts = m.moe.in_layer(layer);
    const std::string& recompute = facts_.parallel.recompute;
    if (recompute == "full")
      return facts_.stream_bytes() + (experts ? of_route() : 0) + of_given_values(layer);
    const std::int64_t post_norms = m.post_norms ? 2 : 0;  // each with its input
    // Without norms before the matrices, the matrices themselves save their inputs. With sequence
    // parallelism and without checkpointing, they save the gathered inputs (input_width).
    const bool gathered = input_width() > 0 && recompute == "none";
    const std::int64_t inputs =
        m.pre_norms ? (m.parallel_residual ? 1 : 2) : 1 + (gathered ? 0 : wanted(2));
    std::int64_t block = (inputs + post_norms) * rows_ * m.hidden_size * element_ +
                         ((m.pre_norms ? 2 : 0) + post_norms) * rows_ * norm_statistics(m);
    block +=
        tokens_ * (here_.queries + 2 * here_.keys) * element_ + (experts ? of_experts() : of_mlp());
    // Dropout with sequence parallelism and several rows saves the positions of tokens, twice per
    // block.
    if (m.dropout > 0 && facts_.parallel.sequence_parallel && facts_.rows > 1)
      block += 2 * rows_ * std::int64_t{sizeof(std::int64_t)};
    for (const AdapterElements& group : adapters_)
      block += tokens_ * group.terms * facts_.lora.rank * element_;
    block += of_fp8_scales(experts) + of_stream_options(layer) + of_given_values(layer);
    if (recompute == "none")
      block += of_normed(model::Fp8Linear::qkv, wanted(0)) + of_attention() + of_whole_norm();
    return block;
  }

  /// Returns the bytes that the embedding saves. Its last result is the input of the first block.
  [[nodiscard]] std::int64_t of_embedding() const {
    const model::ModelConfig& m = facts_.model;
    if (facts_.lora.on() || (!m.embed_norm && !m.smear)) return 0;
    const std::int64_t lookups = m.smear ? 2 : 1;
    std::int64_t bytes = lookups * facts_.stream_bytes();
    if (m.embed_norm) bytes += lookups * rows_ * kStatistic;
    if (!m.smear) return bytes;
    if (m.embed_norm) bytes += facts_.stream_bytes();
    return bytes +
           (rows_ * (model::smear_gate_inputs(m) + 1) + model::smear_gate_inputs(m) + 1) * element_;
  }

  /// Returns the bytes that the terms before the final norm save. Their sources are inputs of blocks.
  [[nodiscard]] std::int64_t of_output() const { return of_terms(facts_.model.num_layers); }

 private:
  /// Returns the bytes of the results of residual terms, which norms read, and of the trained numbers.
  [[nodiscard]] std::int64_t of_terms(std::int64_t layer) const {
    std::int64_t bytes = 0;
    for (const model::ResidualTerm& term : model::residual_terms(facts_.model, layer))
      bytes += facts_.stream_bytes() + (term.scale_name != nullptr ? 2 : 1) * element_;
    return bytes;
  }

  /// Returns the bytes of residual terms, of the gate of a value embedding with its input, and of the
  /// value residual: the difference of values, and its factor.
  [[nodiscard]] std::int64_t of_stream_options(std::int64_t layer) const {
    const model::ModelConfig& m = facts_.model;
    std::int64_t bytes = of_terms(layer);
    if (m.mixes_first_values(layer)) bytes += (tokens_ * here_.keys + 1) * element_;
    if (!m.has_value_embedding(layer)) return bytes;
    const std::int64_t inputs = facts_.lora.on() ? 0 : model::value_gate_inputs(m);
    return bytes + tokens_ * (inputs + here_.key_heads) * element_;
  }

  /// Returns the bytes of the values that later layers read.
  [[nodiscard]] std::int64_t of_given_values(std::int64_t layer) const {
    return facts_.model.gives_first_values(layer) ? tokens_ * here_.keys * element_ : 0;
  }

  [[nodiscard]] std::int64_t wanted(std::size_t group) const {
    return !facts_.lora.on() || adapters_[group].terms > 0 ? 1 : 0;
  }

  /// Returns the elements of a token that a matrix saves beside the input of its norm. Without norm
  /// and without sequence parallelism, these are the same tensor.
  [[nodiscard]] std::int64_t input_width() const {
    const bool same =
        !facts_.model.pre_norms && (facts_.parallel.tp == 1 || !facts_.parallel.sequence_parallel);
    return same ? 0 : facts_.model.hidden_size;
  }

  /// Returns the bytes of the inputs and statistics of a norm over all heads.
  [[nodiscard]] std::int64_t of_whole_norm() const {
    if (!facts_.model.qk_norm_whole) return 0;
    return tokens_ * ((here_.queries + 2 * here_.keys) * element_ + 2 * kStatistic);
  }

  /// Returns the bytes of the fp8 scales of inputs and weights.
  [[nodiscard]] std::int64_t of_fp8_scales(bool experts) const {
    if (facts_.fp8 == model::Fp8Mode::off || facts_.fp8 == model::Fp8Mode::rowwise) return 0;
    const auto linears = model::fp8_linears(facts_.model);
    const auto end = linears.begin() + (experts ? 2 : 4);  // no matrices of the MLP
    return std::count(linears.begin(), end, true) * 2 * std::int64_t{sizeof(float)};
  }

  /// Returns true if a matrix saves fp8 codes of its input.
  [[nodiscard]] bool has_codes(model::Fp8Linear which) const {
    return facts_.fp8 != model::Fp8Mode::off && !facts_.lora.on() &&
           model::fp8_linears(facts_.model).at(static_cast<std::size_t>(which));
  }

  /// Returns the bytes that a matrix saves of its input of `width` elements per token. In fp8, a
  /// trainable matrix saves codes of one byte and their scales.
  [[nodiscard]] std::int64_t of_input(model::Fp8Linear which, std::int64_t width) const {
    if (!has_codes(which) || width == 0) return tokens_ * width * element_;
    const std::int64_t scales = facts_.fp8 == model::Fp8Mode::rowwise ? width : 1;
    return tokens_ * width + scales * std::int64_t{sizeof(float)};
  }

  /// Returns the bytes that a matrix without activation checkpointing saves of its input, the result
  /// of a norm. Backward of RMSNorm computes this result again, unless the matrix saves codes or
  /// needs the result earlier (tp). `wanted` is 0 for a frozen matrix without adapters.
  [[nodiscard]] std::int64_t of_normed(model::Fp8Linear which, std::int64_t wanted) const {
    const model::ModelConfig& m = facts_.model;
    if (m.pre_norms && !m.layer_norm() && facts_.parallel.tp == 1 && !has_codes(which)) return 0;
    return of_input(which, wanted * input_width());
  }

  /// Returns the bytes of gate and up, and without activation checkpointing of their input and of
  /// the fp8 codes of their product. Without codes, backward computes the product again.
  [[nodiscard]] std::int64_t of_mlp() const {
    const std::int64_t bytes = tokens_ * facts_.model.mlp_inputs() * here_.mlp * element_;
    if (facts_.parallel.recompute != "none") return bytes;
    const std::int64_t product =
        has_codes(model::Fp8Linear::down) ? of_input(model::Fp8Linear::down, here_.mlp) : 0;
    return bytes + of_normed(model::Fp8Linear::gate_up, wanted(2)) + product;
  }

  /// Returns the bytes of the order of rows.
  [[nodiscard]] std::int64_t of_route() const {
    return tokens_ * facts_.model.moe.num_experts_per_tok * std::int64_t{sizeof(std::int64_t)};
  }

  /// Returns the bytes of router scores and choices of every token; of weight, gate and up of each
  /// received row and of shared experts; and of inputs: rows from other ranks always, others only
  /// without activation checkpointing.
  [[nodiscard]] std::int64_t of_experts() const {
    const model::MoeConfig& moe = facts_.model.moe;
    const bool folds = facts_.has_expert_grid();
    const std::int64_t k = moe.num_experts_per_tok;
    const std::int64_t etp = parallel::expert_tensor_ranks(facts_.parallel);
    const std::int64_t rows = tokens_ * k * etp / facts_.parallel.tp;
    std::int64_t elements = 2 * (rows * here_.expert + tokens_ * here_.shared);
    if (facts_.parallel.recompute == "none" && !facts_.lora.on())
      elements += tokens_ * facts_.model.hidden_size;
    if (folds && facts_.parallel.ep > 1 && !facts_.lora.on())
      elements += rows * facts_.model.hidden_size;
    constexpr std::int64_t kScore = 4;
    return elements * element_ + (tokens_ * moe.num_experts + rows) * kScore + 2 * of_route();
  }

  /// Returns the bytes of attention without activation checkpointing.
  [[nodiscard]] std::int64_t of_attention() const {
    const parallel::ParallelConfig& parallel = facts_.parallel;
    const std::int64_t statistics = tokens_ * here_.query_heads * kStatistic;
    if (parallel.cp > 1 && parallel.cp_form == "ulysses") {
      // Queries, keys, values and output of some heads at all positions, and for the output matrix
      // the result of all heads at the positions of this rank.
      const std::int64_t key_heads = here_.copies_keys ? here_.query_heads : here_.key_heads;
      const parallel::IndexRange taken = parallel::split_range(
          key_heads, {.readers = here_.query_heads}, static_cast<int>(parallel.cp), coords_.cp);
      return statistics + tokens_ * (2 + wanted(1)) * here_.queries * element_ +
             facts_.rows * facts_.length * 2 * taken.count() * facts_.model.head_dim * element_;
    }
    const std::int64_t keys = here_.copies_keys ? 2 * here_.queries : here_.keys;
    return statistics + tokens_ * (2 * here_.queries + keys) * element_;
  }

  const UpdateFacts& facts_;
  parallel::RankCoords coords_;
  std::int64_t element_;
  std::int64_t tokens_;
  std::int64_t rows_;
  std::array<AdapterElements, 4> adapters_;
  RankWidths here_;
};

/// Returns the peak of saved activations over all micro-batches in flight: the blocks, and after
/// the last block the gradients of the input of the last norm, of that norm and of the head (with
/// LoRA only the first of these).
std::int64_t activation_bytes(const UpdateFacts& facts, const RankUnits& units, int rank) {
  if (!facts.fused || facts.tokens_vary || (facts.has_expert_grid() && !facts.even_experts))
    return -1;
  const model::ModelConfig& m = facts.model;
  const BlockActivations blocks(facts, rank);
  const std::int64_t trained = facts.lora.on() ? 0 : 1;
  const std::int64_t last = facts.stream_bytes() + blocks.of_output() +
                            trained * m.norm_size() * BlockActivations::kStatistic +
                            trained * blocks.widths().vocab * m.hidden_size * facts.master_size();
  std::int64_t kept = 0;
  std::int64_t peak = 0;
  const pipeline::Placement placement = parallel::stage_placement(facts.parallel);
  for (const pipeline::StageAction& pass : actions_of(facts, rank)) {
    const model::StageRange& stage = units.stages[placement.local_stage_index(pass.stage)].layers;
    std::int64_t bytes =
        (stage.has_head ? last : 0) + (stage.has_embedding ? blocks.of_embedding() : 0);
    for (std::int64_t layer = stage.first_layer; layer < stage.end_layer; ++layer)
      bytes += blocks.bytes(layer);
    if (pass.kind == pipeline::ActionKind::forward) kept += bytes;
    if (pipeline::gives_weight_grad(pass.kind)) kept -= bytes;
    peak = std::max(peak, kept);
  }
  return peak;
}

/// Returns the saved activations of one block and one micro batch without activation checkpointing.
double activations_of_one_block(const UpdateFacts& facts) {
  UpdateFacts one = facts;
  one.parallel.recompute = "none";
  one.parallel.pp = 1;
  one.parallel.zero = 0;
  one.parallel.zero_shard = 0;
  one.ranks = static_cast<int>(one.parallel.tp * one.parallel.cp);
  one.micro_steps = 1;
  one.model.num_layers = 1;
  if (one.model.num_value_embeddings() > 0) one.model.value_embeddings = "0";
  one.model.moe.first_dense_layers = 0;
  one.parallel.ep = 1;  // a rank receives as many rows as it sends
  return std::max(0.0, static_cast<double>(memory_formula(one, 0).activation_peak_bytes));
}

}  // namespace

RankMemory memory_formula(const UpdateFacts& facts, int rank) {
  const RankUnits units = rank_units(facts, rank);
  const auto sum_of = [](const std::vector<std::int64_t>& all) {
    return static_cast<double>(std::accumulate(all.begin(), all.end(), std::int64_t{0}));
  };
  const Elements trained{sum_of(units.trained()), sum_of(units.trainable_experts())};
  const Elements frozen{sum_of(units.elements) - trained.dense,
                        sum_of(units.experts) - trained.experts};
  const StateBytes state = state_bytes(facts, trained);
  RankMemory memory;
  memory.weight_bytes = static_cast<std::int64_t>(state.weights + weight_bytes(facts, frozen));
  memory.main_bytes = static_cast<std::int64_t>(state.main);
  memory.grad_bytes = static_cast<std::int64_t>(state.grads);
  memory.optimizer_bytes = static_cast<std::int64_t>(state.optimizer);
  const bool shards_experts = facts.has_expert_grid() && facts.expert_shards() > 1;
  memory.gathered_peak_bytes =
      facts.grads_leave_each_pass() && (facts.parallel.pp > 1 || shards_experts)
          ? -1
          : plan_gathers(facts, units, actions_of(facts, rank)).peak_elements *
                    facts.compute_size() +
                grad_peak_elements(facts, units) * facts.master_size();
  memory.activation_peak_bytes = activation_bytes(facts, units, rank);
  return memory;
}

double known_bytes(const RankMemory& memory) {
  double sum = 0;
  RankMemory::fields(memory, [&](const char*, std::int64_t bytes) {
    sum += static_cast<double>(std::max<std::int64_t>(bytes, 0));
  });
  return sum;
}

double most_known_bytes(const UpdateFacts& facts) {
  double most = 0;
  for (int pp_rank = 0; pp_rank < static_cast<int>(facts.parallel.pp); ++pp_rank)
    most = std::max(most, known_bytes(memory_formula(facts, largest_rank(facts, pp_rank))));
  return most;
}

double block_backward_bytes(const UpdateFacts& facts) {
  const model::ModelConfig& m = facts.model;
  const model::MoeConfig& moe = m.moe;
  const double width =
      moe.on() ? static_cast<double>(moe.num_experts_per_tok * moe.moe_intermediate_size +
                                     moe.shared_width())
               : static_cast<double>(m.intermediate_size);
  // The gradient of the product, those of gate and up, and the product, which is computed again.
  const double of_mlp = moe.on() || m.gated_mlp() ? 4 : 3;
  const double grads = static_cast<double>(facts.tokens()) *
                       static_cast<double>(facts.compute_size()) *
                       (of_mlp * width / static_cast<double>(facts.parallel.tp) +
                        2 * static_cast<double>(m.hidden_size));
  // Attention with a soft-cap holds the scores, their derivative and two gradients in fp32.
  const double scores = m.attention_softcap > 0
                            ? 16 * static_cast<double>(facts.tokens() * facts.length) *
                                  static_cast<double>(m.num_heads) /
                                  static_cast<double>(facts.parallel.tp)
                            : 0;
  return grads + scores +
         (facts.parallel.recompute == "none" ? 0 : activations_of_one_block(facts));
}

double gathered_bytes(const UpdateFacts& facts, const RankMemory& formula, int rank) {
  if (formula.gathered_peak_bytes >= 0) return static_cast<double>(formula.gathered_peak_bytes);
  const RankUnits units = rank_units(facts, rank);
  std::int64_t largest = *std::ranges::max_element(units.elements);
  for (const std::int64_t experts : units.experts) largest = std::max(largest, experts);
  const GatherPlan gathers = plan_gathers(facts, units, actions_of(facts, rank));
  return static_cast<double>(gathers.peak_elements) * static_cast<double>(facts.compute_size()) +
         2 * static_cast<double>(largest) * static_cast<double>(facts.master_size());
}

double logit_bytes(const UpdateFacts& facts, std::int64_t rows, double bytes_each) {
  return bytes_each * static_cast<double>(std::min(facts.tokens(), rows)) *
         static_cast<double>(facts.model.vocab_size) / static_cast<double>(facts.parallel.tp);
}

}  // namespace trireme::train
