#include "train/audit/memory_formula.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "model/block.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/audit/rank_units.hpp"

namespace trireme {
namespace {

std::int64_t bytes_of(at::ScalarType type) {
  return static_cast<std::int64_t>(c10::elementSize(type));
}

/// Whole units of gradients at once: the one that backward fills, the one that left last and waits
/// for its sums (at a pass's start the last of the pass before), and those that are filled from the
/// head's gradient on until the end: a tied embedding, small parameters. Of a pipeline unknown.
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
  std::int64_t filled = 0;  // from the start on, and not gone
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

/// What a block's forward leaves for its backward, of a micro-batch on one rank: its input, queries,
/// keys and values before and after rotation, attention's result, the residual sum, both normed
/// inputs of matrices, gate, up and their product, and statistics of rows. Selective recompute keeps
/// the inputs of what is cheap, full recompute the block's input alone. With LoRA inputs of matrices
/// without adapters go, and each adapter keeps its inner product.
class BlockActivations {
 public:
  BlockActivations(const UpdateFacts& facts, int rank)
      : facts_(facts),
        coords_(coords_of(facts, rank)),
        element_(bytes_of(facts.dtypes.compute)),
        tokens_(facts.rows * facts.length / facts.parallel.cp),
        rows_(facts.parallel.sequence_parallel ? tokens_ / facts.parallel.tp : tokens_),
        adapters_(adapter_elements(facts, coords_.tp)),
        heads_(head_share(facts.model, static_cast<int>(facts.parallel.tp), coords_.tp)) {}

  static constexpr std::int64_t kStatistic = 4;

  /// Tokens of the residual stream.
  [[nodiscard]] std::int64_t rows() const { return rows_; }

  [[nodiscard]] std::int64_t bytes(bool experts) const {
    const ModelConfig& m = facts_.model;
    const std::string& recompute = facts_.parallel.recompute;
    if (recompute == "full") return rows_ * m.hidden_size * element_ + (experts ? of_route() : 0);
    const std::int64_t queries = heads_.query.count() * m.head_dim;
    const std::int64_t keys = heads_.key.count() * m.head_dim;
    std::int64_t block = 2 * rows_ * (m.hidden_size * element_ + kStatistic);
    block += tokens_ * (queries + 2 * keys) * element_ + (experts ? of_experts() : of_mlp());
    // Dropout of a rank's own tokens of several rows has a copy of their places, twice a block.
    if (m.dropout > 0 && facts_.parallel.sequence_parallel && facts_.rows > 1)
      block += 2 * rows_ * std::int64_t{sizeof(std::int64_t)};
    for (const AdapterElements& group : adapters_)
      block += tokens_ * group.terms * facts_.lora.rank * element_;
    if (recompute == "none")
      block += tokens_ * wanted(0) * m.hidden_size * element_ + of_attention(queries, keys);
    return block;
  }

 private:
  [[nodiscard]] std::int64_t wanted(std::size_t group) const {
    return !facts_.lora.on() || adapters_[group].terms > 0 ? 1 : 0;
  }

  [[nodiscard]] std::int64_t share_of(std::int64_t width) const {
    return split_range(width, {}, static_cast<int>(facts_.parallel.tp), coords_.tp).count();
  }

  /// Gate and up, and without recompute what enters them and their product.
  [[nodiscard]] std::int64_t of_mlp() const {
    const std::int64_t width = share_of(facts_.model.intermediate_size);
    std::int64_t elements = 2 * width;
    if (facts_.parallel.recompute == "none")
      elements += wanted(2) * facts_.model.hidden_size + wanted(3) * width;
    return tokens_ * elements * element_;
  }

  /// The order of rows.
  [[nodiscard]] std::int64_t of_route() const {
    return tokens_ * facts_.model.moe.num_experts_per_tok * std::int64_t{sizeof(std::int64_t)};
  }

  /// Scores and choices of every token; weight, gate and up of each row that comes here, and of shared
  /// experts; without recompute what enters, of rows that come from other ranks always.
  [[nodiscard]] std::int64_t of_experts() const {
    const MoeConfig& moe = facts_.model.moe;
    const bool folds = facts_.folds_experts();
    const std::int64_t k = moe.num_experts_per_tok;
    const std::int64_t etp = expert_tensor_ranks(facts_.parallel);
    const std::int64_t width =
        split_range(moe.moe_intermediate_size, {}, static_cast<int>(etp), coords_.etp).count();
    const std::int64_t rows = tokens_ * k * etp / facts_.parallel.tp;
    std::int64_t elements = 2 * (rows * width + tokens_ * share_of(moe.shared_width()));
    if (facts_.parallel.recompute == "none" && !facts_.lora.on())
      elements += tokens_ * facts_.model.hidden_size;
    if (folds && facts_.parallel.ep > 1 && !facts_.lora.on())
      elements += rows * facts_.model.hidden_size;
    constexpr std::int64_t kScore = 4;
    return elements * element_ + (tokens_ * moe.num_experts + rows) * kScore + 2 * of_route();
  }

  /// Of attention without recompute; `queries`, `keys`: elements of a token here.
  [[nodiscard]] std::int64_t of_attention(std::int64_t queries, std::int64_t keys) const {
    const ParallelConfig& parallel = facts_.parallel;
    const std::int64_t statistics = tokens_ * heads_.query.count() * kStatistic;
    const bool each_has_key = !heads_.key_of_query.empty();  // unequal numbers of queries read one
    if (parallel.cp > 1 && parallel.cp_form == "ulysses") {
      // Of some heads all places: queries, keys, values, result; and for the output matrix the
      // result of all heads here.
      const std::int64_t key_heads = each_has_key ? heads_.query.count() : heads_.key.count();
      const IndexRange taken = split_range(key_heads, {.readers = heads_.query.count()},
                                           static_cast<int>(parallel.cp), coords_.cp);
      return statistics + tokens_ * (2 + wanted(1)) * queries * element_ +
             facts_.rows * facts_.length * 2 * taken.count() * facts_.model.head_dim * element_;
    }
    const std::int64_t copied = each_has_key ? 2 * queries - keys : 0;
    return statistics + tokens_ * (2 * queries + keys + copied) * element_;
  }

  const UpdateFacts& facts_;
  RankCoords coords_;
  std::int64_t element_;
  std::int64_t tokens_;
  std::int64_t rows_;
  std::array<AdapterElements, 4> adapters_;
  HeadShare heads_;
};

/// Of a rank's micro-batches under way, the most at any time: blocks, and behind the last the gradients
/// of what enters the last norm, of that norm and of the head (with LoRA the first alone).
std::int64_t activation_bytes(const UpdateFacts& facts, const RankUnits& units, int rank) {
  if (!facts.fused || facts.tokens_vary || (facts.folds_experts() && !facts.even_experts))
    return -1;
  const ModelConfig& m = facts.model;
  const BlockActivations blocks(facts, rank);
  const std::int64_t dense = blocks.bytes(/*experts=*/false);
  const std::int64_t with_experts = m.moe.on() ? blocks.bytes(/*experts=*/true) : 0;
  const std::int64_t vocab =
      split_range(m.vocab_size, {}, static_cast<int>(facts.parallel.tp), coords_of(facts, rank).tp)
          .count();
  const std::int64_t trained = facts.lora.on() ? 0 : 1;
  const std::int64_t last = blocks.rows() * m.hidden_size * bytes_of(facts.dtypes.compute) +
                            trained * m.hidden_size * BlockActivations::kStatistic +
                            trained * vocab * m.hidden_size * bytes_of(facts.dtypes.main);
  std::int64_t kept = 0;
  std::int64_t peak = 0;
  const pipeline::Placement placement = stage_placement(facts.parallel);
  for (const pipeline::Pass& pass : passes_of(facts, rank)) {
    const StageRange& stage = units.stages[placement.place_on_rank(pass.stage)].layers;
    std::int64_t bytes = stage.has_head ? last : 0;
    for (std::int64_t layer = stage.first_layer; layer < stage.end_layer; ++layer)
      bytes += m.moe.in_layer(layer) ? with_experts : dense;
    if (pass.kind == pipeline::PassKind::forward) kept += bytes;
    if (gives_weight_grad(pass.kind)) kept -= bytes;
    peak = std::max(peak, kept);
  }
  return peak;
}

}  // namespace

RankMemory memory_formula(const UpdateFacts& facts, int rank) {
  const RankUnits units = rank_units(facts, rank);
  const std::vector<std::int64_t> trained = units.trained();
  const auto sum_of = [](const std::vector<std::int64_t>& all) {
    return std::accumulate(all.begin(), all.end(), std::int64_t{0});
  };
  const std::int64_t expert_shards = facts.folds_experts() ? facts.expert_shards() : 1;
  // Of units and of experts in their own grid, from a stage of ZeRO on this rank's parts.
  const auto held_of = [&](std::int64_t all, std::int64_t experts, bool parts) {
    return parts ? all / facts.shards() + experts / expert_shards : all + experts;
  };
  const auto held = [&](std::int64_t from_stage) {
    return held_of(sum_of(trained), sum_of(units.trained_experts()),
                   facts.parallel.zero >= from_stage);
  };
  const std::int64_t compute = bytes_of(facts.dtypes.compute);
  const std::int64_t main = bytes_of(facts.dtypes.main);
  RankMemory memory;
  memory.weight_bytes =
      held_of(sum_of(units.elements), sum_of(units.experts), facts.weights_sharded()) * compute;
  const bool two_copies =
      facts.dtypes.compute != facts.dtypes.main || facts.parallel.offload == "optimizer";
  memory.main_bytes = two_copies ? held(1) * main : 0;
  memory.grad_bytes = (facts.parallel.reproducible ? held(1) : held(2)) * main;
  memory.optimizer_bytes = facts.slots * held(1) * main;
  memory.gathered_peak_bytes =
      plan_gathers(facts, units, passes_of(facts, rank)).peak_elements * compute +
      grad_peak_elements(facts, units) * main;
  if (facts.grads_leave_each_pass() && (facts.parallel.pp > 1 || expert_shards > 1))
    memory.gathered_peak_bytes = -1;
  memory.activation_peak_bytes = activation_bytes(facts, units, rank);
  return memory;
}

}  // namespace trireme
