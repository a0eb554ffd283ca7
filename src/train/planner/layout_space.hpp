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

/// A layout and its micro batch size.
struct Layout {
  parallel::ParallelConfig parallel;
  std::int64_t micro_batch = 1;
};

/// The request of a plan. Model, sequence length, precision and global batch size of the
/// configuration must be resolved.
struct PlanRequest {
  train::RunConfig config;
  std::set<std::string> fixed = {};  // keys that keep the configuration's value: "parallel.tp"

  [[nodiscard]] bool keeps(const char* key) const { return fixed.count(key) > 0; }
};

/// Returns true if `trireme pretrain` accepts the layout (check and check_layout).
bool is_valid_layout(const PlanRequest& request, const parallel::ParallelConfig& parallel,
                     int ranks);

/// Returns the problems that check and check_layout find with the fixed keys, all other keys at
/// their defaults: every reason, and the nearest valid layout.
Problems problems_of_fixed(const PlanRequest& request, int ranks);

/// The number of rejected layouts by reason: "layout" (check_layout), "batch" (dp x micro_batch
/// does not divide the global batch), "schedule" (a schedule file has another number of micro
/// batches).
using Rejected = std::map<std::string, std::int64_t>;

/// Returns all layouts that are worth a prediction: tp within a node, powers of two for cp, every
/// pp with its schedules, ep with etp = tp or 1, ZeRO over all data ranks or one node, activation
/// checkpointing, micro batch size. Adds to `rejected`.
std::vector<Layout> layout_space(const PlanRequest& request, const Cluster& cluster,
                                 Rejected& rejected);

}  // namespace trireme::planner
