#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "train/planner/layout_memory.hpp"
#include "train/planner/layout_space.hpp"
#include "train/planner/step_time.hpp"

namespace trireme::planner {

/// One layout with what is predicted of it.
struct PlannedLayout {
  Layout layout;
  std::int64_t micro_steps = 1;
  StepTime time;
  LayoutMemory memory;
  double tokens_per_s_per_gpu = 0;
  double mfu = 0;  // by ModelConfig::flops_per_token: attention in full, recompute not counted
};

struct LayoutPlan {
  std::vector<PlannedLayout> layouts;  // the fastest first
  /// As layout_space, and "memory" (too large), "slower" (not predicted in full: cannot be better
  /// than what is listed).
  Rejected rejected;
};

/// The configuration of one of its layouts, and what formulas of its update are a function of.
RunConfig config_of(const Wish& wish, const Layout& layout);
UpdateFacts facts_of(const Wish& wish, const Layout& layout, int ranks);

PlannedLayout predict_layout(const Wish& wish, const Layout& layout, StepPredictor& predictor);

/// The best layout of each grid (tp, cp, pp, ep, etp) that fits, `top` of them at most: by predicted
/// time, of those within half a percent the one with less tp, pp and recompute.
LayoutPlan rank_layouts(const Wish& wish, StepPredictor& predictor, std::size_t top);

/// Where nothing fits: changes of one thing that would help, as options, the smallest first.
std::vector<std::string> changes_that_fit(const Wish& wish, const Cluster& cluster,
                                          bool batch_is_given);

/// Sequences of an update where none are given: the fewest that all ranks divide, 32 at least.
std::int64_t usual_batch(int ranks);

}  // namespace trireme::planner
