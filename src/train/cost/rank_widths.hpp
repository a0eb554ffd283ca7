#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "train/cost/update_facts.hpp"

namespace trireme {

/// The parts of a model's matrices that one rank holds, as counts along the dimension that is cut.
/// All formulas of memory, traffic and FLOPs start from these counts.
struct RankWidths {
  std::int64_t query_heads = 0;
  std::int64_t key_heads = 0;
  std::int64_t queries = 0;  // query_heads x head_dim
  std::int64_t keys = 0;     // key_heads x head_dim; values have as many
  /// Unequal numbers of query heads read one key head: attention gets a key head for each query head.
  bool copies_keys = false;
  bool shares_keys = false;  // several ranks of tp hold the same key head
  std::int64_t mlp = 0;      // of intermediate_size
  std::int64_t shared = 0;   // of the width of shared experts
  std::int64_t expert = 0;   // of the width of a routed expert in a grid of its own
  std::int64_t experts = 0;  // routed experts on this rank in such a grid
  std::int64_t vocab = 0;    // of the entries of the vocabulary
};

/// Returns the widths of the rank at `at` (tp, etp and ep are read).
RankWidths rank_widths(const UpdateFacts& facts, const RankCoords& at);

/// Returns the rank of a stage group that has the largest part of every matrix: uneven dimensions
/// leave the larger parts to the last ranks. `pp_rank` is the rank on the pipeline axis.
int largest_rank(const UpdateFacts& facts, int pp_rank);

/// Adapters of the linears of a block that share an input, on one rank of tp.
struct AdapterElements {
  std::int64_t terms = 0;            // adapters
  std::int64_t a = 0;                // elements of all A matrices, one below another
  std::vector<std::int64_t> b = {};  // elements of each B matrix
  std::int64_t shared = 0;           // logical elements of matrices that several ranks hold
};

/// Returns the adapters of the groups q k v, o, gate up, down.
std::array<AdapterElements, 4> adapter_elements(const UpdateFacts& facts, int tp_rank);

}  // namespace trireme
