#pragma once
#include <cstdint>
#include <string>

#include "comm/liveness/activity.hpp"
#include "core/timer.hpp"
#include "data/loader.hpp"
#include "train/health/step_shares.hpp"
#include "train/run/run_record.hpp"
#include "train/run/trainer_services.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_model.hpp"

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

/// A run between its first step and its last: its parts and its position. All functions below are
/// collective.
struct TrainingRun {
  const RunRequest& request;
  RunRecord& record;
  RunMeasures& measures;
  const RunData& data;
  RunModel& model;
  TrainerServices& services;
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

  /// Returns the number of micro-batches of this rank in one update.
  [[nodiscard]] std::int64_t micro_steps() const {
    return micro_steps_of(config().train.global_batch, config().train.micro_batch,
                          model.mesh.size(Axis::dp));
  }

  [[nodiscard]] Communicator& world() const { return request.ranks.world; }

  /// Returns the activity that the heartbeat watches; null if there is none.
  [[nodiscard]] Activity* activity() const { return request.ranks.options.activity.get(); }

  void enter(const char* phase) const {
    if (activity() != nullptr) activity()->set_phase(phase);
  }
};

/// Trains to the last step and returns kExitDone. If a stop is requested on a rank (StopRequests),
/// cancels the update between micro-batches and returns kExitStopped after a committed checkpoint.
/// Throws StoppedEarly before the first step. If it throws an error, the last committed checkpoint is
/// intact and the sinks have the lines of all steps.
int train_loop(TrainingRun& run);

/// Runs one step: samples, update, step hash, report. Returns false if the update was cancelled for a
/// stop; then nothing has changed.
[[nodiscard]] bool do_step(TrainingRun& run);

/// Reports the held-out loss. Returns false if the validation was cancelled for a stop.
[[nodiscard]] bool validate(TrainingRun& run);

/// Writes the line of the last reported step and ends the progress line.
void show_last_metrics(TrainingRun& run);

}  // namespace trireme
