#include "pipeline/simulate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace trireme::pipeline {
namespace {

/// The times at which action results exist, by stage and micro-batch.
class Results {
 public:
  Results(const Schedule& schedule, const Timing& timing)
      : placement_(schedule.placement),
        micro_batches_(schedule.micro_batches),
        transfer_(timing.transfer),
        forward_(static_cast<std::size_t>(placement_.stages() * micro_batches_), kNever),
        input_grad_(forward_) {}

  /// Returns the time at which all inputs of the action are on its rank.
  [[nodiscard]] double ready(const StageAction& action) const {
    const int stage = action.stage;
    if (action.kind == ActionKind::forward)
      return stage == 0 ? 0 : arrived(forward_, stage - 1, stage, action.micro_batch);
    if (action.kind == ActionKind::weight_grad) return at(input_grad_, stage, action.micro_batch);
    const double own = at(forward_, stage, action.micro_batch);
    if (stage + 1 == placement_.stages()) return own;
    return std::max(own, arrived(input_grad_, stage + 1, stage, action.micro_batch));
  }

  void end(const StageAction& action, double time) {
    if (action.kind == ActionKind::forward)
      forward_[index_of(action.stage, action.micro_batch)] = time;
    if (gives_input_grad(action.kind))
      input_grad_[index_of(action.stage, action.micro_batch)] = time;
  }

 private:
  [[nodiscard]] std::size_t index_of(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage * micro_batches_ + micro_batch);
  }

  [[nodiscard]] double at(const std::vector<double>& ends, int stage, int micro_batch) const {
    return ends[index_of(stage, micro_batch)];
  }

  [[nodiscard]] double arrived(const std::vector<double>& ends, int from, int to,
                               int micro_batch) const {
    const auto& ranks = placement_.rank_of_stage;
    const bool same = ranks[static_cast<std::size_t>(from)] == ranks[static_cast<std::size_t>(to)];
    return at(ends, from, micro_batch) + (same ? 0 : transfer_);
  }

  const Placement& placement_;
  int micro_batches_;
  double transfer_;
  std::vector<double> forward_;
  std::vector<double> input_grad_;
};

/// The position of one rank in its list.
struct Runner {
  std::size_t next = 0;
  bool runs = false;
  double left = 0;  // remaining time of the running action on a whole processor
};

int peak_of(const std::vector<StageAction>& list) {
  int in_flight = 0;
  int peak = 0;
  for (const StageAction& action : list) {
    if (action.kind == ActionKind::forward) peak = std::max(peak, ++in_flight);
    if (gives_weight_grad(action.kind)) --in_flight;
  }
  return peak;
}

}  // namespace

double ActionTimes::of(ActionKind kind) const {
  const std::array times{forward, input_grad + weight_grad, input_grad, weight_grad};
  return times[static_cast<std::size_t>(kind)];
}

int Simulation::peak() const {
  return peaks.empty() ? 0 : *std::ranges::max_element(peaks);
}

Simulation simulate(const Schedule& schedule, const Timing& timing) {
  Simulation result;
  Results results(schedule, timing);
  const std::size_t ranks = schedule.lists.size();
  std::vector<std::size_t> next(ranks);
  std::vector<double> free(ranks);
  result.begins.resize(ranks);
  double busy = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<StageAction>& list = schedule.lists[rank];
      for (; next[rank] < list.size(); ++next[rank]) {
        const StageAction& action = list[next[rank]];
        const double ready = results.ready(action);
        if (std::isinf(ready)) break;
        const double begin = std::max(ready, free[rank]);
        const double time = timing.of(action.stage).of(action.kind);
        result.begins[rank].push_back(begin);
        free[rank] = begin + time;
        busy += time;
        results.end(action, free[rank]);
        moved = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (next[rank] < schedule.lists[rank].size() && result.stuck.empty())
      result.stuck = text_of(schedule.lists[rank][next[rank]]);
    result.makespan = std::max(result.makespan, free[rank]);
    result.peaks.push_back(peak_of(schedule.lists[rank]));
  }
  if (busy > 0) result.bubble = result.makespan * static_cast<double>(ranks) / busy - 1;
  return result;
}

double makespan_on_processors(const Schedule& schedule, const Timing& timing, double processors) {
  Results results(schedule, timing);
  std::vector<Runner> runners(schedule.lists.size());
  double now = 0;
  while (true) {
    double running = 0;
    double shortest = kNever;  // the shortest remaining time of all running actions
    double arrival = kNever;   // the first time at which one more action can start
    bool over = true;
    for (std::size_t rank = 0; rank < runners.size(); ++rank) {
      Runner& runner = runners[rank];
      const std::vector<StageAction>& list = schedule.lists[rank];
      if (runner.next == list.size()) continue;
      over = false;
      const StageAction& action = list[runner.next];
      if (!runner.runs) {
        const double ready = results.ready(action);
        runner.runs = ready <= now;
        runner.left = timing.of(action.stage).of(action.kind);
        if (!runner.runs) arrival = std::min(arrival, ready);
      }
      if (!runner.runs) continue;
      running += 1;
      shortest = std::min(shortest, runner.left);
    }
    if (over) return now;
    const double speed = running > processors ? processors / running : 1;
    const double end = std::min(arrival, now + shortest / speed);
    if (end == kNever) return kNever;
    for (std::size_t rank = 0; rank < runners.size(); ++rank) {
      Runner& runner = runners[rank];
      if (!runner.runs) continue;
      // Set the remaining time of a finished action to exactly 0, whatever the rounding.
      runner.left =
          runner.left == shortest && end < arrival ? 0 : runner.left - (end - now) * speed;
      if (runner.left > 0) continue;
      results.end(schedule.lists[rank][runner.next++], end);
      runner.runs = false;
    }
    now = end;
  }
}

}  // namespace trireme::pipeline
