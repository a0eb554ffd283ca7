#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/liveness/activity.hpp"
#include "core/timer.hpp"
#include "data/loader.hpp"
#include "train/config/window_schedule.hpp"
#include "train/health/slow_rank.hpp"
#include "train/health/step_shares.hpp"
#include "train/profile/step_profile.hpp"
#include "train/run/run_record.hpp"
#include "train/run/sample_texts.hpp"
#include "train/run/trainer_services.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_model.hpp"

namespace trireme::train {

/// Adds its own lifetime to a measure, in seconds.
class MeasureTime {
 public:
  MeasureTime(Measures& measures, Measures::Id id) : measures_(measures), id_(id) {}

  MeasureTime(const MeasureTime&) = delete;
  MeasureTime& operator=(const MeasureTime&) = delete;

  ~MeasureTime() { measures_.record(id_, timer_.seconds()); }

 private:
  Measures& measures_;
  Measures::Id id_;
  Timer timer_;
};

/// A step between its start and the reading of its results.
struct StartedStep {
  std::int64_t step = 0;
  std::int64_t next_sample = 0;  // first sample of the next step
  std::vector<data::Batch> batches;
  double lr = 0;
  double data_wait_s = 0;
  double update_s = 0;   // time of the update on the host
  double exposed_s = 0;  // part of it in which the host waited for other ranks
  std::optional<UpdateResult> result = std::nullopt;  // nullopt: Step::finish() returns it
};

/// The parts and the progress of a run between its first and last step. All functions below are
/// collective.
struct TrainingRun {
  const RunRequest& request;
  RunRecord& record;
  RunMeasures& measures;
  const RunData& data;
  RunModel& model;
  TrainerServices& services;
  const StartState& beginning;
  SampleTexts& sample_texts;

  const WindowSchedule windows{request.config.train.window_schedule};
  Progress progress = beginning.progress;  // includes only steps with known results
  std::optional<StartedStep> started{};    // the step after them
  bool late_results = false;               // see train.late_results
  // newest step with a complete or unfinished checkpoint
  std::int64_t saved_step = beginning.own_step;
  std::uint64_t trace = 0;  // trace of step progress.step, not in the step hash log yet
  ValidationLoss valid_loss = beginning.valid_loss;  // newest validation loss
  Timer run_time{};                                  // started before the first step
  Timer since_save{};                                // started with the newest save
  std::int64_t steps_since_report = 0;
  double waited_reported_s = 0;  // waiting time of this rank that is already in the metrics
  double ended_reported_s = 0;   // end of the last reported step of this rank, in run_time
  double phases_s = 0;           // compute and data wait of this rank since that step
  StepProfile profile{request.folder.profiles(), request.ranks.world, model.registry.device(),
                      services.files};
  SlowRankWatch slow_ranks{};
  StepShares shares{};             // time shares since this start
  bool layout_recorded = false;    // true if layout.json holds an update of this process
  bool schedule_recorded = false;  // true if it holds an update with the schedule that was found

  [[nodiscard]] const RunConfig& config() const { return request.config; }

  /// Returns the last step that was started.
  [[nodiscard]] std::int64_t last_step() const { return progress.step + (started ? 1 : 0); }

  /// Returns the number of gradient-accumulation steps of the next update.
  [[nodiscard]] std::int64_t micro_steps() const {
    return data::accumulation_steps_of(config().batch_phases().global_batch(last_step() + 1),
                                       config().train.micro_batch,
                                       model.mesh.size(parallel::Axis::dp));
  }

  [[nodiscard]] comm::Communicator& world() const { return request.ranks.world; }

  /// Returns the activity object that the heartbeat watches; null if there is none.
  [[nodiscard]] comm::Activity* activity() const { return request.ranks.options.activity.get(); }

  void enter(const char* phase) const {
    if (activity() != nullptr) activity()->set_phase(phase);
  }
};

/// Trains to the last step and returns kExitDone. If a rank has a stop request (StopRequests), all
/// ranks cancel the update between two micro-batches and commit a checkpoint, and the function
/// returns kExitStopped. Throws StoppedEarly before the first step. After an error, the last
/// committed checkpoint is valid and the sinks have the lines of all steps.
int train_loop(TrainingRun& run);

/// Runs one step: samples, update, step hash, report. Returns false if a stop request cancelled the
/// update. In this case the training state has not changed.
///
/// With late results, the step is only started, and the results of the step before are read after
/// the forward and backward passes, before the weights change again.
[[nodiscard]] bool do_step(TrainingRun& run);

/// Reads the results of the step that was started, if any: step hash, skipped updates, report. A
/// vote must have carried run.trace. Throws Error(numeric) after too many skipped updates in a row.
void finish_step(TrainingRun& run);

/// Returns true if the results of a step are read while the next step runs. Logs why not, if
/// train.late_results asks for it or the device is a GPU.
[[nodiscard]] bool reads_results_late(const TrainingRun& run);

/// Computes and reports the validation loss. Returns false if a stop request cancelled the
/// validation.
[[nodiscard]] bool validate(TrainingRun& run);

/// Waits for the reduction of a step, and writes the line of the report that it carries.
StepVote::Result take_vote(TrainingRun& run);

/// Posts the reduction of a step, with the report of the last step.
void post_vote(TrainingRun& run, const StepVote::Vote& vote);

/// Writes the line of the last reported step and ends the progress line.
void show_last_metrics(TrainingRun& run);

}  // namespace trireme::train
