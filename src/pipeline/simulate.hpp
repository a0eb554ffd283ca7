#pragma once
#include <limits>
#include <string>
#include <vector>

#include "pipeline/schedule.hpp"

namespace trireme::pipeline {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// The times of one stage's actions for one micro-batch, in any unit.
struct ActionTimes {
  double forward = 1;
  double input_grad = 1;
  double weight_grad = 1;

  [[nodiscard]] double of(ActionKind kind) const;

  [[nodiscard]] double sum() const { return forward + input_grad + weight_grad; }
};

struct Timing {
  std::vector<ActionTimes> stages;  // by stage; one entry applies to all stages
  double transfer = 0;              // time from one rank to another, concurrent with computation

  [[nodiscard]] const ActionTimes& of(int stage) const {
    return stages[stages.size() == 1 ? 0 : static_cast<std::size_t>(stage)];
  }
};

struct Simulation {
  /// The first action that can never start because actions wait for each other in a cycle; "" if
  /// all finish. Sends never block a rank; only an action without its input waits.
  std::string stuck = {};
  double makespan = 0;
  /// Idle time of all ranks divided by their busy time; 0 for a pipeline without bubbles.
  double bubble = 0;
  std::vector<int> peaks =
      {};  // by rank: the largest number of micro-batches in flight at any time
  std::vector<std::vector<double>> begins = {};  // by rank and index in its list

  [[nodiscard]] int peak() const;
};

/// Simulates a schedule that has no mistake_in().
Simulation simulate(const Schedule& schedule, const Timing& timing);

/// Returns the makespan if the ranks share fewer processors than there are ranks. Ranks with a
/// running action share the processors evenly, at most one processor each. `timing` holds the times
/// on a whole processor. Returns kNever if the schedule deadlocks.
double makespan_on_processors(const Schedule& schedule, const Timing& timing, double processors);

}  // namespace trireme::pipeline
