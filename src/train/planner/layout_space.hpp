#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/problems.hpp"
#include "train/config/config.hpp"
#include "train/planner/cluster.hpp"

namespace trireme::planner {

/// A layout and the rows of its micro-batches.
struct Layout {
  ParallelConfig parallel;
  std::int64_t micro_batch = 1;
};

/// What a plan is of. The configuration's model, lengths, precision and update are resolved.
struct Wish {
  RunConfig config;
  std::set<std::string> fixed = {};  // keys that keep the configuration's value: "parallel.tp"

  [[nodiscard]] bool keeps(const char* key) const { return fixed.count(key) > 0; }
};

/// Whether `trireme pretrain` would take it: check and check_layout.
bool is_legal(const Wish& wish, const ParallelConfig& parallel, int ranks);

/// What check and check_layout say of the fixed keys alone, all others at their defaults: every
/// reason, and the nearest layout.
Problems problems_of_fixed(const Wish& wish, int ranks);

/// How many layouts there were, and why others were none: "layout" (check_layout), "batch" (dp x
/// micro_batch does not divide the update), "schedule" (a file of another number of micro-batches).
using Rejected = std::map<std::string, std::int64_t>;

/// All layouts that are worth a prediction: tp inside a node, cp powers of two, every pp and its
/// schedules, ep with etp of tp or 1, ZeRO with shards over all data ranks or one node, recompute,
/// rows of a micro-batch. Adds to `rejected`.
std::vector<Layout> layout_space(const Wish& wish, const Cluster& cluster, Rejected& rejected);

}  // namespace trireme::planner
