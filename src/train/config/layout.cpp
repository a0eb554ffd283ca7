#include "train/config/layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/join.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/config/layout_reasons.hpp"

namespace trireme::train {
namespace {

/// Returns the distance between two layouts: the sum of |log2| of the ratios of their axis sizes.
double distance(const parallel::ParallelConfig& a, const parallel::ParallelConfig& b) {
  const auto ratio = [](std::int64_t one, std::int64_t other) {
    return std::abs(std::log2(static_cast<double>(one) / static_cast<double>(other)));
  };
  const auto shards = [](const parallel::ParallelConfig& config) {
    return std::max<std::int64_t>(config.zero_shard, 1);
  };
  // The placement of experts follows from the other axes, so a change of it weighs less.
  constexpr double kExpertWeight = 0.75;
  return ratio(a.tp, b.tp) + ratio(a.cp, b.cp) + ratio(a.pp, b.pp) + ratio(shards(a), shards(b)) +
         kExpertWeight * (ratio(a.ep, b.ep) + ratio(parallel::expert_tensor_ranks(a),
                                                    parallel::expert_tensor_ranks(b)));
}

/// Resets the options that a pipeline does not support.
void reset_pipeline_conflicts(parallel::ParallelConfig& config, const LayoutFacts& facts) {
  const bool one_stage = config.schedule != "interleaved" && !parallel::searches_schedule(config);
  if (one_stage) config.virtual_stages = 1;
  if (parallel::mistake_in_schedule(config)) config.schedule = parallel::ParallelConfig{}.schedule;
  const bool fits = config.pp * config.virtual_stages <= facts.model.num_layers;
  if (!fits) config.virtual_stages = 1;
  config.stages = "auto";
  config.local_steps = 1;
  if (facts.model.tie_embeddings) config.reproducible = false;
  if (config.reproducible) config.zero_persist = 0;
}

/// Resets the options that contradict each other, and too large values of tp_chunks.
void reset_conflicts(parallel::ParallelConfig& config, const LayoutFacts& facts) {
  if (facts.local_steps) config.local_steps = *facts.local_steps;
  if (config.local_steps > 1 && (config.zero > 0 || config.reproducible)) {
    if (facts.local_steps) {
      config.zero = 0;
      config.reproducible = false;
    } else {
      config.local_steps = 1;
    }
  }
  if (config.pp > 1) reset_pipeline_conflicts(config, facts);
  if (parallel::has_expert_grid(config) && config.local_steps > 1 && facts.local_steps) {
    config.ep = 1;
    config.etp = 0;
  } else if (parallel::has_expert_grid(config)) {
    config.local_steps = 1;
    config.reproducible = false;
  }
  if (facts.model.moe.on()) config.tp_chunks = 1;
  if (config.zero > 0 || config.local_steps > 1 || config.reproducible) config.hierarchical = false;
  for (const std::int64_t length : facts.seq_lens)
    config.tp_chunks =
        std::clamp<std::int64_t>(block_input_tokens(config, length), 1, config.tp_chunks);
}

/// Returns the pairs (ep, etp) to try for one stage of `ranks` ranks with tensor parallelism `tp`.
std::vector<std::pair<std::int64_t, std::int64_t>> expert_grids(
    const parallel::ParallelConfig& wanted, const LayoutFacts& facts, std::int64_t tp,
    std::int64_t ranks) {
  if (!facts.model.moe.on() || !parallel::has_expert_grid(wanted)) return {{1, 0}};
  const std::int64_t etp = wanted.etp > 0 && tp % wanted.etp == 0 ? wanted.etp : 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> grids{{1, 0}};
  for (const std::int64_t ep : parallel::divisors(ranks))
    if (facts.model.moe.num_experts % ep == 0) grids.emplace_back(ep, etp);
  return grids;
}

std::optional<parallel::ParallelConfig> nearest_possible(const parallel::ParallelConfig& wanted,
                                                         const LayoutFacts& facts) {
  std::optional<parallel::ParallelConfig> best;
  const auto offer = [&](const parallel::ParallelConfig& one) {
    if (!layout_conflicts(one, facts).empty()) return;
    if (!best || distance(wanted, one) < distance(wanted, *best)) best = one;
  };
  for (const std::int64_t tp : parallel::divisors(facts.ranks)) {
    for (const std::int64_t cp : parallel::divisors(wanted.cp > 1 ? facts.ranks / tp : 1)) {
      for (const std::int64_t pp :
           parallel::divisors(wanted.pp > 1 ? facts.ranks / (tp * cp) : 1)) {
        std::vector<std::int64_t> shards{wanted.zero > 0 ? 0 : wanted.zero_shard};
        if (wanted.zero > 0 && wanted.zero_shard > 0)
          for (const std::int64_t shard : parallel::divisors(facts.ranks / (tp * pp)))
            shards.push_back(shard);
        for (const std::int64_t shard : shards) {
          for (const auto& [ep, etp] : expert_grids(wanted, facts, tp, facts.ranks / pp)) {
            parallel::ParallelConfig one = wanted;
            one.tp = tp;
            one.cp = cp;
            one.pp = pp;
            one.zero_shard = shard;
            one.ep = ep;
            one.etp = etp;
            reset_conflicts(one, facts);
            offer(one);
          }
        }
      }
    }
  }
  return best;
}

/// Returns the keys that differ from `wanted`, as command-line options.
std::string as_options(const parallel::ParallelConfig& config,
                       const parallel::ParallelConfig& wanted) {
  std::vector<std::string> options;
  const auto add = [&](const char* key, std::int64_t value, std::int64_t before) {
    if (value != before) options.push_back(formatted("--parallel.{} {}", key, value));
  };
  add("tp", config.tp, wanted.tp);
  add("cp", config.cp, wanted.cp);
  add("pp", config.pp, wanted.pp);
  add("ep", config.ep, wanted.ep);
  add("etp", config.etp, wanted.etp);
  add("virtual_stages", config.virtual_stages, wanted.virtual_stages);
  if (config.stages != wanted.stages) options.push_back("--parallel.stages auto");
  if (config.schedule != wanted.schedule)
    options.push_back(formatted("--parallel.schedule {}", config.schedule));
  add("tp_chunks", config.tp_chunks, wanted.tp_chunks);
  add("zero", config.zero, wanted.zero);
  add("zero_shard", config.zero_shard, wanted.zero_shard);
  add("local_steps", config.local_steps, wanted.local_steps);
  if (config.hierarchical != wanted.hierarchical)
    options.push_back("--parallel.hierarchical false");
  if (config.reproducible != wanted.reproducible)
    options.push_back("--parallel.reproducible false");
  return joined(options, " ");
}

}  // namespace

void check_layout(const parallel::ParallelConfig& config, const LayoutFacts& facts,
                  Problems& problems) {
  const std::vector<Reason> reasons = layout_conflicts(config, facts);
  if (reasons.empty()) return;
  const auto nearest = nearest_possible(config, facts);
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    std::string text = reasons[i].allowed;
    if (i + 1 == reasons.size() && nearest)
      text += formatted("; the nearest layout that works: {}", as_options(*nearest, config));
    problems.add(reasons[i].key, reasons[i].value, text);
  }
}

void check_micro_batches(const parallel::ParallelConfig& config, std::int64_t micro_steps) {
  const int wanted = parallel::micro_batches_of_schedule(config);
  if (wanted == 0 || wanted == micro_steps) return;
  fail(
      ErrorKind::usage,
      "parallel.schedule = {} has {} micro-batches, but an update has {}: give --train.accumulation {}",
      config.schedule, wanted, micro_steps, wanted);
}

std::string keys_without_effect(const parallel::ParallelConfig& config) {
  const parallel::ParallelConfig usual;
  std::vector<std::string> keys;
  const auto add = [&](bool has_no_effect, const char* key, const auto& value,
                       const char* without) {
    if (has_no_effect) keys.push_back(formatted("parallel.{} = {} ({})", key, value, without));
  };
  const bool alone = config.tp == 1;
  add(alone && config.sequence_parallel, "sequence_parallel", "true", "tp is 1");
  add(alone && config.tp_chunks > 1, "tp_chunks", config.tp_chunks, "tp is 1");
  add(config.cp == 1 && config.cp_form != usual.cp_form, "cp_form", config.cp_form, "cp is 1");
  add(config.cp == 1 && config.cp_balance != usual.cp_balance, "cp_balance", config.cp_balance,
      "cp is 1");
  add(config.zero == 0 && config.zero_shard > 0, "zero_shard", config.zero_shard, "zero is 0");
  const bool one_stage = config.pp == 1;
  add(one_stage && config.schedule != usual.schedule, "schedule", config.schedule, "pp is 1");
  add(config.in_flight > 0 && !parallel::searches_schedule(config), "in_flight", config.in_flight,
      "schedule is not auto");
  add(config.pp_regather != usual.pp_regather && (one_stage || config.zero != 3), "pp_regather",
      config.pp_regather, one_stage ? "pp is 1" : "zero is not 3");
  add(one_stage && config.virtual_stages > 1, "virtual_stages", config.virtual_stages, "pp is 1");
  add(one_stage && config.stages != usual.stages, "stages", config.stages, "pp is 1");
  const bool whole = config.zero != 3;
  add(whole && config.zero_persist > 0, "zero_persist", config.zero_persist, "zero is not 3");
  add(whole && !config.zero_reshard, "zero_reshard", "false", "zero is not 3");
  add(whole && config.zero_prefetch != usual.zero_prefetch, "zero_prefetch", config.zero_prefetch,
      "zero is not 3");
  return keys.empty() ? "" : formatted("without effect here: {}", joined(keys, ", "));
}

}  // namespace trireme::train
