#pragma once
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/transformer.hpp"
#include "parallel/mesh.hpp"
#include "pipeline/schedule.hpp"
#include "pipeline/simulate.hpp"

namespace trireme::train {

/// Chooses the pipeline schedule of each update. With parallel.schedule = auto, the first updates
/// measure the action times of this run, and later updates use the schedule that a search finds.
class ScheduleChoice {
 public:
  /// Both must outlive this object.
  ScheduleChoice(const parallel::Mesh& mesh, const model::Transformer& model);

  /// Returns the schedule of an update. Uses the found schedule if its number of micro-batches is
  /// equal. The reference is valid until the next call.
  const pipeline::Schedule& choose(int micro_batches);

  [[nodiscard]] bool times_actions() const { return !least_s_.empty(); }

  /// Records the time of one action on this rank in seconds, without waiting for other ranks. The
  /// minimum for each stage and kind counts.
  void action_took(const pipeline::StageAction& pass, double seconds);

  /// Searches the schedule once the action times are measured. Collective over the world.
  void after_update(std::span<const parallel::Microbatch> micro_batches);

  /// Returns the schedule that the search found or that a checkpoint holds. A resumed run must use
  /// the same one, because the order of actions is the order of sums in a tied embedding with both
  /// uses on one rank.
  [[nodiscard]] const std::optional<pipeline::Schedule>& found() const { return found_; }

  [[nodiscard]] bool ran_found() const { return runs_found_; }

  /// Uses the found schedule of a checkpoint. Ignores it if the stage placement differs. Throws the
  /// errors of parse_schedule.
  void take(const std::string& text);

 private:
  void stop_timing() { least_s_.clear(); }

  [[nodiscard]] pipeline::Timing slowest_times(const at::Tensor& message) const;

  const parallel::Mesh& mesh_;
  const model::Transformer& model_;
  pipeline::Schedule schedule_;                         // schedule of the last update
  pipeline::Timing timing_{{pipeline::ActionTimes{}}};  // times that the search uses
  std::vector<std::array<double, 4>> least_s_;          // by stage and ActionKind; empty: not timed
  std::optional<pipeline::Schedule> found_;
  bool runs_found_ = false;
  int timed_updates_ = 0;
};

}  // namespace trireme::train
