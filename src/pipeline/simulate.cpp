#include "pipeline/simulate.hpp"

#include <algorithm>
#include <cmath>

#include "pipeline/results.hpp"

namespace trireme::pipeline {
namespace {

int peak_of(const std::vector<Pass>& list) {
  int under_way = 0;
  int peak = 0;
  for (const Pass& pass : list) {
    if (pass.kind == PassKind::forward) peak = std::max(peak, ++under_way);
    if (gives_weight_grad(pass.kind)) --under_way;
  }
  return peak;
}

}  // namespace

double PassTimes::of(PassKind kind) const {
  switch (kind) {
    case PassKind::forward:
      return forward;
    case PassKind::backward:
      return input_grad + weight_grad;
    case PassKind::input_grad:
      return input_grad;
    case PassKind::weight_grad:
      return weight_grad;
  }
  return 0;
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
      const std::vector<Pass>& list = schedule.lists[rank];
      for (; next[rank] < list.size(); ++next[rank]) {
        const Pass& pass = list[next[rank]];
        const double ready = results.ready(pass);
        if (std::isinf(ready)) break;
        const double begin = std::max(ready, free[rank]);
        const double time = timing.of(pass.stage).of(pass.kind);
        result.begins[rank].push_back(begin);
        free[rank] = begin + time;
        busy += time;
        results.end(pass, free[rank]);
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

}  // namespace trireme::pipeline
