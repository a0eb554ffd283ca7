#include "pipeline/shared.hpp"

#include "pipeline/results.hpp"

namespace trireme::pipeline {
namespace {

/// The position of one rank in its list.
struct Runner {
  std::size_t next = 0;
  bool runs = false;
  double left = 0;  // remaining time of the running action on a whole processor
};

}  // namespace

double shared_makespan(const Schedule& schedule, const Timing& timing, double processors) {
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
      const std::vector<Pass>& list = schedule.lists[rank];
      if (runner.next == list.size()) continue;
      over = false;
      const Pass& pass = list[runner.next];
      if (!runner.runs) {
        const double ready = results.ready(pass);
        runner.runs = ready <= now;
        runner.left = timing.of(pass.stage).of(pass.kind);
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
