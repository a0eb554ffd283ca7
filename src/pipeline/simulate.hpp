#pragma once
#include <limits>
#include <string>
#include <vector>

#include "pipeline/schedule.hpp"

namespace trireme::pipeline {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// How long a stage takes for one micro-batch, in any unit.
struct PassTimes {
  double forward = 1;
  double input_grad = 1;
  double weight_grad = 1;

  [[nodiscard]] double of(PassKind kind) const;

  [[nodiscard]] double sum() const { return forward + input_grad + weight_grad; }
};

struct Timing {
  std::vector<PassTimes> stages;  // of each; one: all alike
  double transfer = 0;            // from a rank to another, beside computation

  [[nodiscard]] const PassTimes& of(int stage) const {
    return stages[stages.size() == 1 ? 0 : static_cast<std::size_t>(stage)];
  }
};

/// What a schedule comes to.
struct Simulation {
  /// The first pass that can never begin, where passes wait for one another in a circle; "" if all
  /// end. Sends never hold a rank up: what waits is the pass that needs what is sent.
  std::string stuck = {};
  double makespan = 0;
  /// Idle time of all ranks over their busy time: 0 in a pipeline without bubbles.
  double bubble = 0;
  std::vector<int> peaks =
      {};  // by rank: micro-batches of its stages under way, the most at any time
  std::vector<std::vector<double>> begins = {};  // by rank and place in its list

  [[nodiscard]] int peak() const;
};

/// Of a schedule without a mistake_in().
Simulation simulate(const Schedule& schedule, const Timing& timing);

}  // namespace trireme::pipeline
