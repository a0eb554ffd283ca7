#include "train/config/layout.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/join.hpp"
#include "parallel/param_spec.hpp"

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
  if (config.reproducible && (config.hierarchical || config.local_steps > 1)) {
    reasons.push_back({"parallel.reproducible", "true",
                       "must be false with parallel.hierarchical or local_steps: sums in another "
                       "order, or of each rank alone"});
  }
  if (config.hierarchical && config.local_steps > 1) {
    reasons.push_back({"parallel.hierarchical", "true",
                       formatted("must be false with parallel.local_steps = {}: gradients do not "
                                 "leave a data rank",
                                 config.local_steps)});
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
                       "must be 1 with model.attention_dropout: no rank has whole rows of scores"});
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
  const std::int64_t model_ranks = config.tp * config.cp * config.pp;
  if (facts.ranks % model_ranks != 0) {
    reasons.push_back({"parallel.tp * cp * pp", cat(model_ranks),
                       formatted("must divide the {} ranks started", facts.ranks)});
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
  return ratio(a.tp, b.tp) + ratio(a.cp, b.cp) + ratio(shards(a), shards(b));
}

std::optional<ParallelConfig> nearest_possible(const ParallelConfig& wanted,
                                               const LayoutFacts& facts) {
  std::optional<ParallelConfig> best;
  for (std::int64_t tp = 1; tp <= facts.ranks; ++tp) {
    for (std::int64_t cp = 1; cp * tp <= (wanted.cp > 1 ? facts.ranks : tp); ++cp) {
      for (std::int64_t shard = 0; shard <= (wanted.zero_shard > 0 ? facts.ranks : 0); ++shard) {
        ParallelConfig one = wanted;
        one.tp = tp;
        one.cp = cp;
        one.zero_shard = shard;
        for (const std::int64_t length : facts.seq_lens)
          one.tp_chunks = std::clamp<std::int64_t>(entering_tokens(one, length), 1, one.tp_chunks);
        if (one.zero > 0) one.local_steps = 1;
        if (one.zero > 0 || one.local_steps > 1) one.hierarchical = false;
        if (one.reproducible) {
          one.local_steps = 1;
          one.hierarchical = false;
        }
        if (!reasons_against(one, facts).empty()) continue;
        if (!best || distance(wanted, one) < distance(wanted, *best)) best = one;
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
  add("tp_chunks", config.tp_chunks, wanted.tp_chunks);
  add("zero_shard", config.zero_shard, wanted.zero_shard);
  add("local_steps", config.local_steps, wanted.local_steps);
  if (config.hierarchical != wanted.hierarchical)
    options.push_back("--parallel.hierarchical false");
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

}  // namespace trireme
