#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "train/cost/update_facts.hpp"

namespace trireme::train {

/// The sizes of a model's matrices on one rank along their sharded dimension. All formulas of
/// memory, traffic and FLOPs use these sizes.
struct RankWidths {
  std::int64_t query_heads = 0;
  std::int64_t key_heads = 0;
  std::int64_t queries = 0;  // query_heads x head_dim
  std::int64_t keys = 0;     // key_heads x head_dim; values have as many
  /// Key heads have unequal numbers of query heads, so keys are copied for each query head.
  bool copies_keys = false;
  bool shares_keys = false;  // several ranks of tp hold the same key head
  std::int64_t mlp = 0;      // share of intermediate_size
  std::int64_t shared = 0;   // share of the width of shared experts
  std::int64_t expert = 0;   // share of the width of a routed expert in the expert grid
  std::int64_t experts = 0;  // routed experts on this rank in the expert grid
  std::int64_t vocab = 0;    // share of the vocabulary
};

/// Returns the widths of the rank at `at` (tp, etp and ep are read).
RankWidths rank_widths(const UpdateFacts& facts, const parallel::RankCoords& at);

/// Returns the rank with the largest shard of every matrix among the ranks of `pp_rank` (the rank
/// on the pipeline axis). With uneven dimensions, the last ranks have the larger shards.
int largest_rank(const UpdateFacts& facts, int pp_rank);

/// The adapters of those linear layers of a block that share an input, on one rank of tp.
struct AdapterElements {
  std::int64_t terms = 0;            // number of adapters
  std::int64_t a = 0;                // elements of all stacked A matrices
  std::vector<std::int64_t> b = {};  // elements of each B matrix
  std::int64_t shared = 0;           // elements of replicated matrices
};

/// Returns the adapters of the groups (q, k, v), (o), (gate, up), (down).
std::array<AdapterElements, 4> adapter_elements(const UpdateFacts& facts, int tp_rank);

}  // namespace trireme::train
