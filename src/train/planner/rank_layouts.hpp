#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "train/planner/layout_memory.hpp"
#include "train/planner/layout_space.hpp"
#include "train/planner/step_time.hpp"

namespace trireme::planner {

/// One layout with its predictions.
struct PlannedLayout {
  Layout layout;
  std::int64_t micro_steps = 1;
  StepTime time;
  LayoutMemory memory;
  double tokens_per_s_per_gpu = 0;
  double mfu = 0;  // by ModelConfig::flops_per_token: full attention, without recomputation
};

struct LayoutPlan {
  std::vector<PlannedLayout> layouts;  // fastest first
  /// Reasons of layout_space, and "memory" (too large), "slower" (skipped, because it cannot be
  /// faster than the listed layouts).
  Rejected rejected;
};

/// Returns the input of the formulas for a layout.
train::UpdateFacts facts_of(const PlanRequest& request, const Layout& layout, int ranks);

PlannedLayout predict_layout(const PlanRequest& request, const Layout& layout,
                             StepPredictor& predictor);

/// Returns the best fitting layout of each grid (tp, cp, pp, ep, etp), at most `top`, sorted by
/// predicted time. Of layouts within 0.5 %, the one with less tp, pp and activation checkpointing
/// is better.
LayoutPlan rank_layouts(const PlanRequest& request, StepPredictor& predictor, std::size_t top);

/// Returns single options that would make a layout fit, smallest change first. For use if nothing
/// fits.
std::vector<std::string> changes_that_fit(const PlanRequest& request, const Cluster& cluster,
                                          bool batch_is_given);

/// Returns the default global batch size: the smallest multiple of the number of ranks, at least
/// 32.
std::int64_t default_global_batch(int ranks);

}  // namespace trireme::planner
