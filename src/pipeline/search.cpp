#include "pipeline/search.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/greedy.hpp"

namespace trireme::pipeline {
namespace {

class Best {
 public:
  Best(const Timing& timing, int max_in_flight) : timing_(timing), limit_(max_in_flight) {}

  void offer(Schedule schedule, std::string_view origin) {
    Simulation simulation = simulate(schedule, timing_);
    if (!simulation.stuck.empty()) return;
    if (found_ && rank_of(found_->simulation) <= rank_of(simulation)) return;
    found_ = {std::move(schedule), std::move(simulation), std::string(origin)};
  }

  Found take() { return std::move(*found_); }

 private:
  /// Returns a key for comparison, lower is better: excess over the limit, then time, then peak.
  [[nodiscard]] std::tuple<int, double, int> rank_of(const Simulation& one) const {
    const int above = limit_ == 0 ? 0 : std::max(0, one.peak() - limit_);
    return {above, one.makespan, one.peak()};
  }

  const Timing& timing_;
  int limit_;
  std::optional<Found> found_;
};

void offer_all(const Placement& placement, const Shape& shape, const Timing& timing,
               int max_in_flight, Best& best) {
  for (const std::string_view name : kSchedules) {
    if (!mistake_in_stages(name, shape.virtual_stages).empty() ||
        stages_per_rank(name, shape.virtual_stages) != shape.virtual_stages)
      continue;
    Schedule schedule = named_schedule(name, shape);
    if (schedule.placement == placement) best.offer(std::move(schedule), name);
  }
  std::set<int> limits{max_in_flight};
  const int whole = shape.ranks * shape.virtual_stages;  // micro-batches in flight with 1f1b
  for (const int limit : {whole / 2, whole, whole + shape.ranks, 2 * whole})
    if (limit > 0 && (max_in_flight == 0 || limit < max_in_flight)) limits.insert(limit);
  for (const int limit : limits) {
    for (const bool split : {false, true}) {
      for (const bool forward_first : {false, true})
        best.offer(
            greedy_schedule(placement, shape.micro_batches, timing, {limit, split, forward_first}),
            "greedy");
    }
  }
}

}  // namespace

Found search_schedule(const Shape& shape, const Timing& timing, int max_in_flight) {
  Best best(timing, max_in_flight);
  offer_all(looped_placement(shape.ranks, shape.virtual_stages), shape, timing, max_in_flight,
            best);
  if (shape.virtual_stages == 2)
    offer_all(v_placement(shape.ranks), shape, timing, max_in_flight, best);
  return best.take();
}

Found search_schedule(const Placement& placement, int micro_batches, const Timing& timing,
                      int max_in_flight) {
  Best best(timing, max_in_flight);
  const int on_each = placement.stages() / placement.ranks;
  offer_all(placement, {placement.ranks, on_each, micro_batches}, timing, max_in_flight, best);
  return best.take();
}

}  // namespace trireme::pipeline
