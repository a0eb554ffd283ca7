#include "train/planner/rank_layouts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/number.hpp"
#include "parallel/pipeline/stage_plan.hpp"

namespace trireme::planner {
namespace {

using Grid = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

Grid grid_of(const parallel::ParallelConfig& parallel) {
  return {parallel.tp, parallel.cp, parallel.pp, parallel.ep,
          parallel::expert_tensor_ranks(parallel)};
}

/// Sort key: times within 0.5 % count as equal, then the simpler layout comes first.
auto order_of(const PlannedLayout& one) {
  const parallel::ParallelConfig& parallel = one.layout.parallel;
  return std::tuple(std::floor(std::log(one.time.step_s) / std::log(1.005)), parallel.tp,
                    parallel.pp, parallel.cp, parallel.recompute != "none", parallel.zero,
                    one.time.step_s);
}

struct Candidate {
  const Layout* layout;
  double least_s;
};

/// Collects the best layout of each grid.
class Best {
 public:
  explicit Best(std::size_t top) : top_(top) {}

  [[nodiscard]] double of(const Grid& grid) const {
    const auto found = grids_.find(grid);
    return found == grids_.end() ? std::numeric_limits<double>::infinity()
                                 : found->second.time.step_s;
  }

  void offer(PlannedLayout one) {
    const Grid grid = grid_of(one.layout.parallel);
    const auto found = grids_.find(grid);
    if (found == grids_.end()) {
      grids_.emplace(grid, std::move(one));
    } else if (order_of(one) < order_of(found->second)) {
      found->second = std::move(one);
    }
  }

  /// Returns true if at least `top` grids have a layout with a step time of at most `seconds`.
  [[nodiscard]] bool is_full_below(double seconds) const {
    std::size_t below = 0;
    for (const auto& [grid, one] : grids_) below += one.time.step_s <= seconds ? 1 : 0;
    return below >= top_;
  }

  std::vector<PlannedLayout> take() {
    std::vector<PlannedLayout> all;
    for (auto& [grid, one] : grids_) all.push_back(std::move(one));
    std::ranges::sort(all, [](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
    if (all.size() > top_) all.resize(top_);
    return all;
  }

 private:
  std::size_t top_;
  std::map<Grid, PlannedLayout> grids_;
};

bool fits(const train::UpdateFacts& facts, const Cluster& cluster) {
  const double usable = usable_bytes(cluster);
  return min_memory(facts) <= usable && max_rank_memory(facts, cluster.device).total() <= usable;
}

/// Returns a global batch size for which layouts may exist: a multiple of the number of ranks, or
/// the size that a schedule file requires.
std::int64_t another_batch(const PlanRequest& request, std::int64_t ranks,
                           const Rejected& rejected) {
  const train::TrainConfig& train = request.config.train;
  if (!rejected.contains("schedule")) return (train.global_batch + ranks - 1) / ranks * ranks;
  parallel::ParallelConfig parallel = request.config.parallel;
  parallel.pp = 2;  // any pipeline; the schedule file gives its length
  parallel.pp = parallel::stage_placement(parallel).ranks;
  if (!request.keeps("parallel.tp")) parallel.tp = 1;
  if (!request.keeps("parallel.cp")) parallel.cp = 1;
  return parallel::micro_batches_of_schedule(parallel) *
         (ranks / std::max<std::int64_t>(1, parallel.tp * parallel.cp * parallel.pp)) *
         (request.keeps("train.micro_batch") ? train.micro_batch : 1);
}

bool any_fits(PlanRequest request, const Cluster& cluster, bool batch_is_given) {
  if (!batch_is_given) request.config.train.global_batch = default_global_batch(cluster.ranks());
  Rejected rejected;
  for (const Layout& layout : layout_space(request, cluster, rejected))
    if (fits(facts_of(request, layout, cluster.ranks()), cluster)) return true;
  return false;
}

/// Returns the smallest number of nodes above that of `cluster` on which a layout fits.
std::optional<int> nodes_that_fit(const PlanRequest& request, Cluster cluster,
                                  bool batch_is_given) {
  const auto helps = [&](int nodes) {
    cluster.nodes = nodes;
    return any_fits(request, cluster, batch_is_given);
  };
  const int most = kMostPlannedRanks / cluster.per_node;
  int too_few = cluster.nodes;
  int enough = 2 * too_few;
  while (enough <= most && !helps(enough)) {
    too_few = enough;
    enough *= 2;
  }
  if (enough > most) return std::nullopt;
  for (int step = too_few / 2; step > 0;
       step /= 2) {  // test only halves, because few sizes divide well
    if (enough - step > too_few && helps(enough - step)) enough -= step;
  }
  return enough;
}

}  // namespace

std::int64_t default_global_batch(int ranks) {
  constexpr int kLeast = 32;
  return (std::max(kLeast, ranks) + ranks - 1) / ranks * ranks;
}

train::UpdateFacts facts_of(const PlanRequest& request, const Layout& layout, int ranks) {
  train::RunConfig config = request.config;
  config.parallel = layout.parallel;
  config.train.micro_batch = layout.micro_batch;
  return train::facts_of_run(config, ranks);
}

PlannedLayout predict_layout(const PlanRequest& request, const Layout& layout,
                             StepPredictor& predictor) {
  const Cluster& cluster = predictor.cluster();
  const train::UpdateFacts facts = facts_of(request, layout, cluster.ranks());
  PlannedLayout one{layout, facts.micro_steps, predictor.predict(facts), {}, 0, 0};
  one.memory = max_rank_memory(facts, cluster.device);
  const train::TrainConfig& train = request.config.train;
  const auto tokens = static_cast<double>(train.global_batch * train.seq_len);
  one.tokens_per_s_per_gpu = tokens / one.time.step_s / cluster.ranks();
  one.mfu = one.tokens_per_s_per_gpu *
            request.config.model.flops_per_token(train.seq_len, trained_parts(facts)) /
            cluster.device.peak_flops;
  if (cluster.device.shares_node) one.mfu *= cluster.per_node;
  return one;
}

LayoutPlan rank_layouts(const PlanRequest& request, StepPredictor& predictor, std::size_t top) {
  const Cluster& cluster = predictor.cluster();
  LayoutPlan plan;
  const std::vector<Layout> space = layout_space(request, cluster, plan.rejected);
  std::vector<Candidate> candidates;
  for (const Layout& layout : space) {
    const train::UpdateFacts facts = facts_of(request, layout, cluster.ranks());
    if (min_memory(facts) > usable_bytes(cluster)) {
      ++plan.rejected["memory"];
      continue;
    }
    candidates.push_back({&layout, predictor.least_s(facts)});
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::least_s);
  Best best(top);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto& [layout, least_s] = candidates[i];
    if (best.is_full_below(least_s)) {
      plan.rejected["slower"] += std::ssize(candidates) - static_cast<std::ptrdiff_t>(i);
      break;
    }
    if (best.of(grid_of(layout->parallel)) < least_s) {
      ++plan.rejected["slower"];
    } else if (!fits(facts_of(request, *layout, cluster.ranks()), cluster)) {
      ++plan.rejected["memory"];
    } else {
      best.offer(predict_layout(request, *layout, predictor));
    }
  }
  plan.layouts = best.take();
  return plan;
}

std::vector<std::string> changes_that_fit(const PlanRequest& request, const Cluster& cluster,
                                          bool batch_is_given) {
  std::vector<std::string> changes;
  Rejected rejected;
  if (layout_space(request, cluster, rejected).empty()) {
    PlanRequest other = request;
    std::int64_t& batch = other.config.train.global_batch;
    batch = another_batch(request, cluster.ranks(), rejected);
    if (batch > 0 && any_fits(other, cluster, /*batch_is_given=*/true))
      changes.push_back(formatted("--train.global_batch {}", batch));
  }
  if (request.config.parallel.offload == "none" && !cluster.device.shares_node) {
    PlanRequest other = request;
    other.config.parallel.offload = "optimizer";
    if (any_fits(other, cluster, batch_is_given))
      changes.emplace_back("--parallel.offload optimizer");
  }
  if (const auto nodes = nodes_that_fit(request, cluster, batch_is_given))
    changes.push_back(formatted("--nodes {}", *nodes));
  for (const std::string& name : device_kind_names()) {
    Cluster other = cluster;
    other.device = device_kind(name);
    if (other.device.shares_node || other.device.memory_bytes <= cluster.device.memory_bytes)
      continue;
    if (any_fits(request, other, batch_is_given)) changes.push_back(formatted("--gpu {}", name));
  }
  return changes;
}

}  // namespace trireme::planner
