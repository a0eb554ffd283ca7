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

/// What forward leaves for backward of a micro-batch: for every block its input, queries, keys and
/// values before and after rotation, attention's result, the residual sum, both normed inputs of
/// matrices, gate, up and their product, and statistics of rows; behind the last the gradients of
/// what enters the last norm, of that norm and of the head. Selective recompute keeps the inputs of
/// what is cheap, full recompute the block's input alone. With LoRA inputs of matrices without
/// adapters go, norm and head have no gradient, and each adapter keeps its inner product.
std::int64_t activation_bytes(const UpdateFacts& facts, const RankUnits& units, int rank) {
  if (!facts.fused || facts.tokens_vary) return -1;
  const ModelConfig& m = facts.model;
  const ParallelConfig& parallel = facts.parallel;
  const int at_tp = coords_of(facts, rank).tp;
  const auto tp = static_cast<int>(parallel.tp);
  const HeadShare heads = head_share(m, tp, at_tp);
  const std::int64_t width = split_range(m.intermediate_size, {}, tp, at_tp).count();
  const std::int64_t vocab = split_range(m.vocab_size, {}, tp, at_tp).count();
  const std::int64_t queries = heads.query.count() * m.head_dim;
  const std::int64_t keys = heads.key.count() * m.head_dim;
  const std::int64_t tokens = facts.rows * facts.length / parallel.cp;
  const std::int64_t rows = parallel.sequence_parallel ? tokens / tp : tokens;
  const std::int64_t element = bytes_of(facts.dtypes.compute);
  constexpr std::int64_t kStatistic = 4;

  std::int64_t block = rows * m.hidden_size * element;  // full recompute
  if (parallel.recompute != "full") {
    block = 2 * rows * (m.hidden_size * element + kStatistic);
    block += tokens * (queries + 2 * keys + 2 * width) * element;
  }
  // Dropout of a rank's own tokens of several rows has a copy of their places, twice a block.
  if (parallel.recompute != "full" && m.dropout > 0 && parallel.sequence_parallel && facts.rows > 1)
    block += 2 * rows * std::int64_t{sizeof(std::int64_t)};
  const std::array<AdapterElements, 4> adapters = adapter_elements(facts, at_tp);
  const auto wanted = [&](std::size_t group) {
    return !facts.lora.on() || adapters[group].terms > 0 ? 1 : 0;
  };
  if (parallel.recompute != "full") {
    for (const AdapterElements& group : adapters)
      block += tokens * group.terms * facts.lora.rank * element;
  }
  if (parallel.recompute == "none") {
    block += tokens * ((wanted(0) + wanted(2)) * m.hidden_size + wanted(3) * width) * element;
    block += tokens * heads.query.count() * kStatistic;
    const bool each_has_key = !heads.key_of_query.empty();  // unequal numbers of queries read one
    if (parallel.cp > 1 && parallel.cp_form == "ulysses") {
      // Of some heads all places: queries, keys, values, result; and for the output matrix the
      // result of all heads here.
      const std::int64_t key_heads = each_has_key ? heads.query.count() : heads.key.count();
      const IndexRange taken =
          split_range(key_heads, {.readers = heads.query.count()}, static_cast<int>(parallel.cp),
                      coords_of(facts, rank).cp);
      block += tokens * (2 + wanted(1)) * queries * element;
      block += facts.rows * facts.length * 2 * taken.count() * m.head_dim * element;
    } else {
      block += tokens * (2 * queries + keys) * element;
      if (each_has_key) block += tokens * (2 * queries - keys) * element;
    }
  }
  const std::int64_t trained = facts.lora.on() ? 0 : 1;
  const std::int64_t last = rows * m.hidden_size * element + trained * m.hidden_size * kStatistic +
                            trained * vocab * m.hidden_size * bytes_of(facts.dtypes.main);
  // Micro-batches under way in each stage.
  std::int64_t kept = 0;
  std::int64_t peak = 0;
  const pipeline::Placement placement = stage_placement(parallel);
  for (const pipeline::Pass& pass : passes_of(facts, rank)) {
    const StageRange& stage = units.stages[placement.place_on_rank(pass.stage)].layers;
    const std::int64_t bytes =
        (stage.end_layer - stage.first_layer) * block + (stage.has_head ? last : 0);
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
  const auto held_of = [&](std::int64_t all, std::int64_t from_stage) {
    return facts.parallel.zero >= from_stage ? all / facts.shards() : all;
  };
  const auto held = [&](std::int64_t from_stage) { return held_of(sum_of(trained), from_stage); };
  const std::int64_t compute = bytes_of(facts.dtypes.compute);
  const std::int64_t main = bytes_of(facts.dtypes.main);
  RankMemory memory;
  memory.weight_bytes = held_of(sum_of(units.elements), 3) * compute;
  const bool two_copies =
      facts.dtypes.compute != facts.dtypes.main || facts.parallel.offload == "optimizer";
  memory.main_bytes = two_copies ? held(1) * main : 0;
  memory.grad_bytes = (facts.parallel.reproducible ? held(1) : held(2)) * main;
  memory.optimizer_bytes = facts.slots * held(1) * main;
  memory.gathered_peak_bytes =
      plan_gathers(facts, units, passes_of(facts, rank)).peak_elements * compute +
      grad_peak_elements(facts, units) * main;
  if (facts.parallel.pp > 1 && facts.grads_leave_each_pass()) memory.gathered_peak_bytes = -1;
  memory.activation_peak_bytes = activation_bytes(facts, units, rank);
  return memory;
}

}  // namespace trireme
