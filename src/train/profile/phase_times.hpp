#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/json.hpp"
#include "core/named_range.hpp"

namespace trireme::train {

/// The rows of the table, in order. Their times add up to the step time.
struct PhaseRow {
  Phase phase;
  std::string_view key;    // name in phases.json
  std::string_view label;  // name in the printed table
};

inline constexpr std::array<PhaseRow, 7> kPhaseRows{{
    {Phase::forward, "forward_s", "forward"},
    {Phase::backward, "backward_s", "backward"},
    {Phase::communication, "comm_exposed_s", "communication, exposed"},
    {Phase::data_wait, "data_wait_s", "data wait"},
    {Phase::optimizer, "optimizer_s", "optimizer"},
    {Phase::checkpoint, "checkpoint_s", "checkpoint"},
    {Phase::other, "other_s", "other"},
}};

/// Gives each moment of the profiled steps to one phase. The caller passes the time in seconds.
///
/// A range inside another one takes its time from the outer range. Ranges inside data wait,
/// checkpoint and other do not: their whole time belongs to the outermost of these phases.
class PhaseTimes {
 public:
  /// Starts the first step.
  void start(std::int64_t step, double now_s);
  void begin(Phase phase, double now_s);
  void end(double now_s);
  /// Ends the step and starts the next one. All ranges have ended.
  void end_step(double now_s);

  [[nodiscard]] bool empty() const { return steps_.empty(); }

  /// Returns true if begin() with `phase`, or end(), changes the phase.
  [[nodiscard]] bool begin_changes(Phase phase) const;

  [[nodiscard]] bool end_changes() const { return stack_.back().changed; }

  /// Returns the times of the complete steps, in the form of phases.json.
  [[nodiscard]] Json to_json(int rank) const;

 private:
  struct Step {
    std::int64_t number;
    double step_s;
    std::array<double, kPhaseRows.size()> phases_s;
  };

  struct Range {
    Phase phase;
    bool keeps_inner_ranges;  // the time of inner ranges belongs to this phase
    bool changed;             // false: the range continues the phase around it
  };

  void count(double now_s);

  std::vector<Range> stack_{{Phase::other, false, false}};
  std::vector<Step> steps_;  // complete ones
  Step current_{};
  double step_start_s_ = 0;
  double counted_s_ = 0;  // all time before this moment has a phase
};

/// Returns the table of one or several ranks, with a row per phase, in milliseconds per step.
/// `ranks`: values of PhaseTimes::to_json(), not empty.
std::string phase_table(std::span<const Json> ranks);

}  // namespace trireme::train
