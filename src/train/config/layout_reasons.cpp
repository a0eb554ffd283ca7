#include "train/config/layout_reasons.hpp"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "core/number.hpp"
#include "model/residual_terms.hpp"
#include "model/stages/stages.hpp"
#include "parallel/param_spec.hpp"
#include "parallel/pipeline/stage_plan.hpp"

namespace trireme::train {
namespace {

/// Adds a reason. `allowed` is a format for `args`.
template <class T, class... Args>
void add(std::vector<Reason>& reasons, const char* key, const T& value,
         MessageFormat<std::type_identity_t<Args>...> allowed, const Args&... args) {
  reasons.push_back({key, cat(value), formatted<Args...>(allowed, args...)});
}

/// Adds conflicts between forms of data parallelism.
void add_data_reasons(const parallel::ParallelConfig& config, std::vector<Reason>& reasons) {
  if (config.local_steps > 1 && config.zero > 0)
    add(reasons, "parallel.local_steps", config.local_steps,
        "must be 1 with parallel.zero = {}: with local steps each rank holds the whole state",
        config.zero);
  if (config.hierarchical && config.zero > 0)
    add(reasons, "parallel.hierarchical", "true",
        "must be false with parallel.zero = {}: set parallel.zero_shard to the ranks of a node to reduce inside it first",
        config.zero);
  if (config.reproducible && config.hierarchical)
    add(reasons, "parallel.reproducible", "true",
        "must be false with parallel.hierarchical, which sums in another order");
  if (config.reproducible && config.local_steps > 1)
    add(reasons, "parallel.reproducible", "true",
        "must be false with parallel.local_steps = {}: each data rank sums only its own gradients",
        config.local_steps);
  if (config.hierarchical && config.local_steps > 1)
    add(reasons, "parallel.hierarchical", "true",
        "must be false with parallel.local_steps = {}: gradients are not reduced over data ranks",
        config.local_steps);
}

bool has_several_stages_on_a_rank(const parallel::ParallelConfig& config) {
  const pipeline::Placement placement = parallel::stage_placement(config);
  return placement.stages() > placement.ranks;
}

/// Adds conflicts of the pipeline's stages and schedule.
void add_stage_reasons(const parallel::ParallelConfig& config, const LayoutFacts& facts,
                       std::vector<Reason>& reasons) {
  if (config.pp == 1 || config.pp > facts.ranks) return;  // more ranks than there are: refused
  if (const auto mistake = parallel::mistake_in_schedule(config)) {
    reasons.push_back({mistake->key, mistake->value, mistake->why});
    return;
  }
  for (const auto& [key, is_set] :
       {std::pair{"model.residual_scalars", facts.model.residual_scalars},
        {"model.skips", facts.model.skips},
        {"model.backout", facts.model.backout},
        {"model.value_residual", facts.model.value_residual}}) {
    if (is_set)
      add(reasons, "parallel.pp", config.pp,
          "must be 1 with {}: a stage sends only the residual stream to the next stage, not the hidden states of earlier layers",
          key);
  }
  if (facts.model.smear && facts.model.tie_embeddings)
    add(reasons, "parallel.pp", config.pp,
        "must be 1 with model.smear and model.tie_embeddings: the first stage needs more weights beside the embedding than the last stage");
  const std::int64_t stages = parallel::stage_placement(config).stages();
  if (stages > facts.model.num_layers) {
    add(reasons, "parallel.pp", config.pp,
        "makes {} stages of schedule {}, must be at most model.num_layers = {}: each stage needs at least one layer",
        stages, config.schedule, facts.model.num_layers);
  } else if (config.stages != "auto") {
    try {
      (void)model::parse_stages(config.stages, facts.model, stages);
    } catch (const Error& error) {
      reasons.push_back({"parallel.stages", config.stages, error.what()});
    }
  }
  if (config.local_steps > 1)
    add(reasons, "parallel.local_steps", config.local_steps,
        "must be 1 with parallel.pp: all stages clip by one norm");
  const std::int64_t on_each = stages / config.pp;
  if (parallel::searches_schedule(config) && config.in_flight > 0 && config.in_flight < on_each)
    add(reasons, "parallel.in_flight", config.in_flight,
        "must be 0 (no limit) or at least {}: a rank holds one micro-batch for each of its stages",
        on_each);
  if (const std::string pass = config.reproducible ? parallel::weights_out_of_order(config) : "";
      !pass.empty())
    add(reasons, "parallel.reproducible", "true",
        "must be false with this parallel.schedule: {} is not in the order of the micro-batches",
        pass);
  if (config.reproducible && config.zero == 3 && config.zero_persist > 0 &&
      has_several_stages_on_a_rank(config))
    add(reasons, "parallel.reproducible", "true",
        "must be false with parallel.zero_persist = {} and several stages on a rank: the small parameters of its stages are summed together, in the order of the pipeline",
        config.zero_persist);
  if (config.reproducible && facts.model.tie_embeddings)
    add(reasons, "parallel.reproducible", "true",
        "must be false with parallel.pp and model.tie_embeddings: the two gradients of the embedding table are computed in different pipeline actions");
}

/// Adds conflicts of the expert grid (ep, etp).
void add_expert_reasons(const parallel::ParallelConfig& config, const LayoutFacts& facts,
                        std::vector<Reason>& reasons) {
  const model::MoeConfig& moe = facts.model.moe;
  if (!moe.on()) {
    if (config.ep > 1)
      add(reasons, "parallel.ep", config.ep, "must be 1 with model.num_experts = 0");
    if (config.etp > 1)
      add(reasons, "parallel.etp", config.etp, "must be 0 or 1 with model.num_experts = 0");
    return;
  }
  const std::int64_t etp = parallel::expert_tensor_ranks(config);
  if (etp > moe.moe_intermediate_size) {
    const bool as_tp = config.etp == 0;
    add(reasons, as_tp ? "parallel.tp" : "parallel.etp", etp,
        "must be at most model.moe_intermediate_size = {}: each rank holds a shard of every expert{}",
        moe.moe_intermediate_size, as_tp ? " (parallel.etp 1: whole experts)" : "");
  }
  if (config.tp > 1 && config.tp_chunks > 1)
    add(reasons, "parallel.tp_chunks", config.tp_chunks,
        "must be 1 for a model with experts: all of its tokens are routed at once");
  if (!parallel::has_expert_grid(config)) return;
  if (moe.num_experts % config.ep != 0)
    add(reasons, "parallel.ep", config.ep, "must divide model.num_experts = {}", moe.num_experts);
  if (config.reproducible)
    add(reasons, "parallel.reproducible", "true",
        "must be false with parallel.ep or etp: a rank sums gradients for tokens of several ranks at once");
  if (config.local_steps > 1)
    add(reasons, "parallel.local_steps", config.local_steps,
        "must be 1 with parallel.ep or etp: data ranks train each other's experts");
  if (!parallel::divides(config, facts.ranks)) return;
  const std::int64_t ranks = facts.ranks / config.pp;
  if (ranks % (etp * config.ep) != 0) {
    add(reasons, "parallel.ep", config.ep, "must divide tp x cp x dp / etp = {}",
        number_text(static_cast<double>(ranks) / static_cast<double>(etp)));
    return;
  }
  const std::int64_t together = config.zero_shard * config.tp;
  const bool fits = together % (etp * config.ep) == 0 ||
                    etp * config.ep % std::max<std::int64_t>(together, 1) == 0;
  if (config.zero > 0 && config.zero_shard > 0 && !fits)
    add(reasons, "parallel.zero_shard", config.zero_shard,
        "x tp = {} and etp x ep = {}: one must divide the other", together, etp * config.ep);
}

/// Adds conflicts of fp8 products with tensor parallelism.
void add_fp8_reasons(const parallel::ParallelConfig& config, const LayoutFacts& facts,
                     std::vector<Reason>& reasons) {
  if (facts.fp8 == model::Fp8Mode::off || config.tp == 1) return;
  if (config.tp_chunks > 1)
    add(reasons, "parallel.tp_chunks", config.tp_chunks,
        "must be 1 with train.fp8: a scale needs all tokens of a product");
  const model::ModelConfig& model = facts.model;
  const auto linears = model::fp8_linears(model);
  const auto is_fp8 = [&](model::Fp8Linear which) {
    return linears.at(static_cast<std::size_t>(which));
  };
  for (int rank = 0; rank < config.tp; ++rank) {
    const auto held = [&](std::int64_t size, const parallel::DimSplit& split) {
      return parallel::split_range(size, split, static_cast<int>(config.tp), rank).count();
    };
    const std::int64_t heads = held(model.num_heads, {});
    const std::int64_t key_heads = held(model.num_kv_heads, {.readers = model.num_heads});
    const std::int64_t width = held(model.intermediate_size, {});
    using enum model::Fp8Linear;
    for (const auto& [which, size] :
         {std::pair{qkv, (heads + 2 * key_heads) * model.head_dim},
          std::pair{output, heads * model.head_dim}, std::pair{gate_up, model.mlp_inputs() * width},
          std::pair{down, width}}) {
      if (!is_fp8(which) || size % model::kFp8Divisor == 0) continue;
      add(reasons, "parallel.tp", config.tp,
          "must split each matrix into parts divisible by {} with train.fp8: rank {} of tp gets {} rows or columns",
          model::kFp8Divisor, rank, size);
      return;
    }
  }
}

}  // namespace

std::int64_t block_input_tokens(const parallel::ParallelConfig& config, std::int64_t length) {
  return length / config.cp / (config.sequence_parallel ? config.tp : 1);
}

std::vector<Reason> layout_conflicts(const parallel::ParallelConfig& config,
                                     const LayoutFacts& facts) {
  std::vector<Reason> reasons;
  const model::ModelConfig& model = facts.model;
  if (config.tp > model.num_heads)
    add(reasons, "parallel.tp", config.tp,
        "must be at most model.num_heads = {}: a rank holds whole heads", model.num_heads);
  if (config.tp > std::min(model.vocab_size, model.intermediate_size))
    add(reasons, "parallel.tp", config.tp,
        "must be at most the vocabulary ({}) and model.intermediate_size = {}", model.vocab_size,
        model.intermediate_size);
  add_expert_reasons(config, facts, reasons);
  add_fp8_reasons(config, facts, reasons);
  if (config.sequence_parallel) {
    for (const std::int64_t length : facts.seq_lens) {
      if (length % config.tp == 0) continue;
      add(reasons, "parallel.tp", config.tp,
          "must divide the sequence length {} with parallel.sequence_parallel", length);
    }
  }
  for (const std::int64_t length : facts.seq_lens) {
    const std::int64_t chunks = config.cp > 1 ? 2 * config.cp : 1;
    if (length % chunks != 0) {
      add(reasons, "parallel.cp", config.cp, "2 x cp = {} must divide the sequence length {}",
          chunks, length);
    } else if (config.sequence_parallel && length / config.cp % config.tp != 0 &&
               length % config.tp == 0)
      add(reasons, "parallel.tp", config.tp,
          "must divide the {} tokens of a sequence on each rank of cp with parallel.sequence_parallel",
          length / config.cp);
  }
  for (const std::int64_t length : facts.seq_lens) {
    const std::int64_t tokens = block_input_tokens(config, length);
    if (config.tp == 1 || config.tp_chunks <= std::max<std::int64_t>(tokens, 1)) continue;
    add(reasons, "parallel.tp_chunks", config.tp_chunks,
        "must be at most the {} tokens that a rank has of a sequence of {} tokens at block input",
        tokens, length);
  }
  if (config.cp > 1 && model.attention_dropout > 0)
    add(reasons, "parallel.cp", config.cp,
        "must be 1 with model.attention_dropout = {}: attention over tokens of several ranks ({}) does not support dropout",
        number_text(model.attention_dropout), config.cp_form);
  for (int rank = 0; config.cp_form == "ulysses" && config.cp > 1 && rank < config.tp; ++rank) {
    const std::int64_t heads =
        parallel::split_range(model.num_heads, {}, static_cast<int>(config.tp), rank).count();
    if (heads % config.cp == 0) continue;
    add(reasons, "parallel.cp", config.cp,
        "must divide the {} heads of each rank of tp with parallel.cp_form = ulysses", heads);
    break;
  }
  add_data_reasons(config, reasons);
  add_stage_reasons(config, facts, reasons);
  const std::int64_t model_ranks = config.tp * config.cp * config.pp;
  if (facts.ranks % model_ranks != 0) {
    add(reasons, "parallel.tp * cp * pp", model_ranks,
        "must divide the {} ranks started (a resumed run keeps its layout unless these keys are set)",
        facts.ranks);
  } else if (config.zero > 0 && config.zero_shard > 0) {
    const std::int64_t data = facts.ranks / (config.tp * config.pp);
    if (data % config.zero_shard != 0)
      add(reasons, "parallel.zero_shard", config.zero_shard, "must divide dp x cp = {}", data);
  }
  return reasons;
}

}  // namespace trireme::train
