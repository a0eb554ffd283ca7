#pragma once
#include <cstdint>
#include <string>

#include "core/timer.hpp"
#include "data/loader.hpp"
#include "train/health/step_shares.hpp"
#include "train/run/keepers.hpp"
#include "train/run/run_data.hpp"
#include "train/run/run_model.hpp"
#include "train/run/run_record.hpp"
#include "train/step/update_targets.hpp"

namespace trireme {

/// Adds the time that it lives to a measure.
class CountTime {
 public:
  CountTime(Measures& measures, Measures::Id id) : measures_(measures), id_(id) {}

  CountTime(const CountTime&) = delete;
  CountTime& operator=(const CountTime&) = delete;

  ~CountTime() { measures_.record(id_, timer_.seconds()); }

 private:
  Measures& measures_;
  Measures::Id id_;
  Timer timer_;
};

/// A run between its first step and its last: what was made for it, and where it stands. The
/// functions below are its parts; all are collective.
struct TrainingRun {
  const RunRequest& request;
  RunRecord& record;
  RunMeasures& measures;
  const RunData& data;
  RunModel& model;
  Keepers& keepers;
  DataLoader& loader;
  UpdateTargets& targets;
  const Beginning& beginning;

  Progress progress = beginning.progress;
  std::int64_t saved_step = beginning.own_step;  // in its own folder, being written or committed
  std::uint64_t trace = 0;                       // of the last step, not in the chain yet
  ValidLoss valid_loss = beginning.valid_loss;   // the newest one
  Timer run_time{};                              // since the first step began
  Timer since_save{};                            // the last one's start
  std::int64_t steps_since_report = 0;
  double waited_reported_s = 0;    // of all that this rank waited for others
  StepShares shares{};             // of the time since the start
  bool layout_recorded = false;    // what an update of this process took
  bool schedule_recorded = false;  // and what one with a schedule that was found took

  [[nodiscard]] const RunConfig& config() const { return request.config; }

  [[nodiscard]] Communicator& world() const { return request.ranks.world; }

  /// For whoever watches this rank; null where nobody does.
  [[nodiscard]] Activity* activity() const { return request.ranks.options.activity.get(); }

  void enter(const char* phase) const;
};

/// Trains to the last step: kExitDone; or to the step at which a rank was asked to stop
/// (stop_requests.hpp): kExitStopped, after a committed checkpoint; an update under way is given up
/// between its micro-batches. Throws StoppedEarly before the first step, and what ends the run,
/// with the last committed checkpoint intact and the lines of all steps with the sinks.
int train_loop(TrainingRun& run);

/// One update with everything around it but checkpoints. False: it was given up between
/// micro-batches for a stop; then nothing has changed.
[[nodiscard]] bool do_step(TrainingRun& run);

/// Held-out loss. False: it was given up for a stop.
[[nodiscard]] bool validate(TrainingRun& run);

/// What follows from a line of metrics, the same on all ranks.
void heed(TrainingRun& run, const MetricsLine& line);

/// The line of the last reported step, and the end of the progress line.
void show_last_metrics(TrainingRun& run);

/// A checkpoint of where the run stands, whose chain is settled.
void save(TrainingRun& run);

/// Of a save in flight.
void commit(TrainingRun& run);

/// The last words: what was done and where it is.
void close(const TrainingRun& run, bool done);

}  // namespace trireme
