#include "train/config/layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "model/stages.hpp"
#include "parallel/param_spec.hpp"
#include "pipeline/named.hpp"

namespace trireme {
namespace {

struct Reason {
  std::string key;
  std::string value;
  std::string allowed;
};

/// Of forms of data parallelism that exclude one another.
void add_data_reasons(const ParallelConfig& config, std::vector<Reason>& reasons) {
  if (config.local_steps > 1 && config.zero > 0) {
    reasons.push_back({"parallel.local_steps", cat(config.local_steps),
                       formatted("must be 1 with parallel.zero = {}: ranks that train on their own "
                                 "hold all of the state each",
                                 config.zero)});
  }
  if (config.hierarchical && config.zero > 0) {
    reasons.push_back(
        {"parallel.hierarchical", "true",
         formatted("must be false with parallel.zero = {}: there "
                   "parallel.zero_shard = the ranks of a node reduces inside it first",
                   config.zero)});
  }
  if (config.reproducible && config.hierarchical) {
    reasons.push_back({"parallel.reproducible", "true",
                       "must be false with parallel.hierarchical: it adds up in another order"});
  }
  if (config.reproducible && config.local_steps > 1) {
    reasons.push_back({"parallel.reproducible", "true",
                       formatted("must be false with parallel.local_steps = {}: each data rank "
                                 "adds up its own gradients alone",
                                 config.local_steps)});
  }
  if (config.hierarchical && config.local_steps > 1) {
    reasons.push_back({"parallel.hierarchical", "true",
                       formatted("must be false with parallel.local_steps = {}: gradients do not "
                                 "leave a data rank",
                                 config.local_steps)});
  }
}

/// Of stages of a pipeline.
void add_stage_reasons(const ParallelConfig& config, const LayoutFacts& facts,
                       std::vector<Reason>& reasons) {
  if (config.pp == 1) return;
  if (facts.compares_models) {
    reasons.push_back(
        {"parallel.pp", cat(config.pp),
         "must be 1 where a second model runs beside: a rank has all its stages (dpo takes "
         "a file of dpo-reference as dpo.reference)"});
  }
  const std::string mistake =
      pipeline::mistake_in_stages(config.schedule, static_cast<int>(config.virtual_stages));
  if (!mistake.empty()) {
    reasons.push_back({"parallel.virtual_stages", cat(config.virtual_stages), mistake});
    return;
  }
  const std::int64_t stages =
      config.pp * pipeline::stages_a_rank(config.schedule, static_cast<int>(config.virtual_stages));
  if (stages > facts.model.num_layers) {
    reasons.push_back({"parallel.pp", cat(config.pp),
                       formatted("makes {} stages of schedule {}, must be at most model.num_layers "
                                 "= {}: a stage has a layer or more",
                                 stages, config.schedule, facts.model.num_layers)});
  } else if (config.stages != "auto") {
    try {
      (void)parse_stages(config.stages, facts.model, stages);
    } catch (const Error& error) {
      reasons.push_back({"parallel.stages", config.stages, error.what()});
    }
  }
  if (config.local_steps > 1) {
    reasons.push_back({"parallel.local_steps", cat(config.local_steps),
                       "must be 1 with parallel.pp: stages clip by one norm"});
  }
  if (config.reproducible && facts.model.tie_embeddings) {
    reasons.push_back({"parallel.reproducible", "true",
                       "must be false with parallel.pp and model.tie_embeddings: the table's two "
                       "gradients of a micro-batch are formed in passes far apart"});
  }
}

/// Tokens of a sequence of `length` that enter a block on a rank: of them pieces are made.
std::int64_t entering_tokens(const ParallelConfig& config, std::int64_t length) {
  return length / config.cp / (config.sequence_parallel ? config.tp : 1);
}

std::vector<Reason> reasons_against(const ParallelConfig& config, const LayoutFacts& facts) {
  std::vector<Reason> reasons;
  const ModelConfig& model = facts.model;
  if (config.tp > model.num_heads) {
    reasons.push_back({"parallel.tp", cat(config.tp),
                       formatted("must be at most model.num_heads = {}: a rank holds whole heads",
                                 model.num_heads)});
  }
  if (config.tp > std::min(model.vocab_size, model.intermediate_size)) {
    reasons.push_back(
        {"parallel.tp", cat(config.tp),
         formatted("must be at most the vocabulary ({}) and model.intermediate_size = {}",
                   model.vocab_size, model.intermediate_size)});
  }
  const MoeConfig& moe = model.moe;
  if (moe.on() && config.tp > moe.moe_intermediate_size) {
    reasons.push_back({"parallel.tp", cat(config.tp),
                       formatted("must be at most model.moe_intermediate_size = {}: a rank holds a "
                                 "part of every expert",
                                 moe.moe_intermediate_size)});
  }
  if (moe.on() && config.tp > 1 && config.tp_chunks > 1) {
    reasons.push_back({"parallel.tp_chunks", cat(config.tp_chunks),
                       "must be 1 for a model with experts: all of its tokens are routed at once"});
  }
  if (config.sequence_parallel) {
    for (const std::int64_t length : facts.seq_lens) {
      if (length % config.tp == 0) continue;
      reasons.push_back(
          {"parallel.tp", cat(config.tp),
           formatted("must divide the length of the sequences, {}, with parallel.sequence_parallel",
                     length)});
    }
  }
  for (const std::int64_t length : facts.seq_lens) {
    const std::int64_t pieces = config.cp > 1 ? 2 * config.cp : 1;
    if (length % pieces != 0) {
      reasons.push_back(
          {"parallel.cp", cat(config.cp),
           formatted("2 cp = {} must divide the length of the sequences, {}", pieces, length)});
    } else if (config.sequence_parallel && length / config.cp % config.tp != 0 &&
               length % config.tp == 0) {
      reasons.push_back({"parallel.tp", cat(config.tp),
                         formatted("must divide the {} tokens that a rank of cp has of a sequence, "
                                   "with parallel.sequence_parallel",
                                   length / config.cp)});
    }
  }
  for (const std::int64_t length : facts.seq_lens) {
    const std::int64_t tokens = entering_tokens(config, length);
    if (config.tp == 1 || config.tp_chunks <= std::max<std::int64_t>(tokens, 1)) continue;
    reasons.push_back({"parallel.tp_chunks", cat(config.tp_chunks),
                       formatted("must be at most the {} tokens that a rank has of a sequence of "
                                 "{} where it enters a block",
                                 tokens, length)});
  }
  if (config.cp > 1 && model.attention_dropout > 0) {
    reasons.push_back({"parallel.cp", cat(config.cp),
                       formatted("must be 1 with model.attention_dropout = {}: attention over "
                                 "tokens of several ranks ({}) drops no probabilities",
                                 number_text(model.attention_dropout), config.cp_form)});
  }
  for (int rank = 0; config.cp_form == "ulysses" && config.cp > 1 && rank < config.tp; ++rank) {
    const std::int64_t heads =
        split_range(model.num_heads, {}, static_cast<int>(config.tp), rank).count();
    if (heads % config.cp == 0) continue;
    reasons.push_back({"parallel.cp", cat(config.cp),
                       formatted("must divide the {} heads of a rank of tp, with parallel.cp_form "
                                 "= ulysses",
                                 heads)});
    break;
  }
  add_data_reasons(config, reasons);
  add_stage_reasons(config, facts, reasons);
  const std::int64_t model_ranks = config.tp * config.cp * config.pp;
  if (facts.ranks % model_ranks != 0) {
    reasons.push_back({"parallel.tp * cp * pp", cat(model_ranks),
                       formatted("must divide the {} ranks started (a run that goes on keeps "
                                 "its own layout unless these keys are given)",
                                 facts.ranks)});
  } else if (config.zero > 0 && config.zero_shard > 0) {
    const std::int64_t data = facts.ranks / (config.tp * config.pp);
    if (data % config.zero_shard != 0)
      reasons.push_back({"parallel.zero_shard", cat(config.zero_shard),
                         formatted("must divide dp x cp = {}", data)});
  }
  return reasons;
}

/// By how much one layout is another: each factor of two counts.
double distance(const ParallelConfig& a, const ParallelConfig& b) {
  const auto ratio = [](std::int64_t one, std::int64_t other) {
    return std::abs(std::log2(static_cast<double>(one) / static_cast<double>(other)));
  };
  const auto shards = [](const ParallelConfig& config) {
    return std::max<std::int64_t>(config.zero_shard, 1);
  };
  return ratio(a.tp, b.tp) + ratio(a.cp, b.cp) + ratio(a.pp, b.pp) + ratio(shards(a), shards(b));
}

/// Takes back what stages exclude.
void leave_out_of_pipeline(ParallelConfig& config, const LayoutFacts& facts) {
  const bool one_stage = config.schedule != "interleaved";
  if (one_stage) config.virtual_stages = 1;
  const bool fits = config.pp * config.virtual_stages <= facts.model.num_layers;
  if (!fits) config.virtual_stages = 1;
  config.stages = "auto";
  config.local_steps = 1;
  if (facts.model.tie_embeddings) config.reproducible = false;
}

/// Takes back what excludes another form of data parallelism, or exchanges too few tokens.
void leave_out_contradictions(ParallelConfig& config, const LayoutFacts& facts) {
  if (facts.local_steps) config.local_steps = *facts.local_steps;
  if (config.local_steps > 1 && (config.zero > 0 || config.reproducible)) {
    if (facts.local_steps) {
      config.zero = 0;
      config.reproducible = false;
    } else {
      config.local_steps = 1;
    }
  }
  if (config.pp > 1) leave_out_of_pipeline(config, facts);
  if (facts.model.moe.on()) config.tp_chunks = 1;
  if (config.zero > 0 || config.local_steps > 1 || config.reproducible) config.hierarchical = false;
  for (const std::int64_t length : facts.seq_lens)
    config.tp_chunks =
        std::clamp<std::int64_t>(entering_tokens(config, length), 1, config.tp_chunks);
}

std::optional<ParallelConfig> nearest_possible(const ParallelConfig& wanted,
                                               const LayoutFacts& facts) {
  std::optional<ParallelConfig> best;
  const auto offer = [&](const ParallelConfig& one) {
    if (!reasons_against(one, facts).empty()) return;
    if (!best || distance(wanted, one) < distance(wanted, *best)) best = one;
  };
  for (const std::int64_t tp : divisors(facts.ranks)) {
    for (const std::int64_t cp : divisors(wanted.cp > 1 ? facts.ranks / tp : 1)) {
      for (const std::int64_t pp : divisors(wanted.pp > 1 ? facts.ranks / (tp * cp) : 1)) {
        std::vector<std::int64_t> shards{wanted.zero > 0 ? 0 : wanted.zero_shard};
        if (wanted.zero > 0 && wanted.zero_shard > 0)
          for (const std::int64_t shard : divisors(facts.ranks / (tp * pp)))
            shards.push_back(shard);
        for (const std::int64_t shard : shards) {
          ParallelConfig one = wanted;
          one.tp = tp;
          one.cp = cp;
          one.pp = pp;
          one.zero_shard = shard;
          leave_out_contradictions(one, facts);
          offer(one);
        }
      }
    }
  }
  return best;
}

/// The keys that differ, as options.
std::string as_options(const ParallelConfig& config, const ParallelConfig& wanted) {
  std::vector<std::string> options;
  const auto add = [&](const char* key, std::int64_t value, std::int64_t before) {
    if (value != before) options.push_back(formatted("--parallel.{} {}", key, value));
  };
  add("tp", config.tp, wanted.tp);
  add("cp", config.cp, wanted.cp);
  add("pp", config.pp, wanted.pp);
  add("virtual_stages", config.virtual_stages, wanted.virtual_stages);
  if (config.stages != wanted.stages) options.push_back("--parallel.stages auto");
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

void check_layout(const ParallelConfig& config, const LayoutFacts& facts, Problems& problems) {
  const std::vector<Reason> reasons = reasons_against(config, facts);
  if (reasons.empty()) return;
  const auto nearest = nearest_possible(config, facts);
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    std::string text = reasons[i].allowed;
    if (i + 1 == reasons.size() && nearest)
      text += formatted("; the nearest layout that works: {}", as_options(*nearest, config));
    problems.add(reasons[i].key, reasons[i].value, text);
  }
}

std::string keys_without_effect(const ParallelConfig& config) {
  const ParallelConfig usual;
  std::vector<std::string> keys;
  const auto add = [&](bool is_idle, const char* key, const auto& value, const char* without) {
    if (is_idle) keys.push_back(formatted("parallel.{} = {} ({})", key, value, without));
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
  add(one_stage && config.virtual_stages > 1, "virtual_stages", config.virtual_stages, "pp is 1");
  add(one_stage && config.stages != usual.stages, "stages", config.stages, "pp is 1");
  const bool whole = config.zero != 3;
  add(whole && config.zero_persist > 0, "zero_persist", config.zero_persist, "zero is not 3");
  add(whole && !config.zero_reshard, "zero_reshard", "false", "zero is not 3");
  add(whole && config.zero_prefetch != usual.zero_prefetch, "zero_prefetch", config.zero_prefetch,
      "zero is not 3");
  return keys.empty() ? "" : formatted("without effect here: {}", joined(keys, ", "));
}

}  // namespace trireme
