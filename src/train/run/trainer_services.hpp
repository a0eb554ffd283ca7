#pragma once

#include "train/control/step_vote.hpp"
#include "train/control/stop_requests.hpp"
#include "train/health/skipped_steps.hpp"
#include "train/report/metrics.hpp"
#include "train/run/kept_peak.hpp"
#include "train/run/run_record.hpp"
#include "train/start/begin.hpp"
#include "train/state/saver.hpp"
#include "train/step/step_chain.hpp"

namespace trireme {

/// The numbers that the loop itself measures; seconds are of this rank.
struct RunMeasures {
  Measures all;                                             // components declare theirs here, too
  Measures::Id data_wait_s = all.declare({"data_wait_s"});  // for the loader
  Measures::Id comm_s = all.declare({"comm_s"});            // in the update
  Measures::Id comm_exposed_s = all.declare({"comm_exposed_s"});
  Measures::Id save_s = all.declare({"save_s"});              // checkpoints, and their copies
  Measures::Id validation_s = all.declare({"validation_s"});  // since the step before
  /// Waiting for other ranks, wherever that was; who waited least kept the others waiting.
  Measures::Id peer_wait_s = all.declare({"peer_wait_s", Combine::mean, false, "slowest_rank"});
  Measures::Id mem_peak_bytes = all.declare({"mem_peak_bytes", Combine::max, /*whole=*/true});
};

/// Services beside the steps of a run: saves, metrics, the step hash log, skipped steps, stop
/// requests.
struct TrainerServices {
  CheckpointSaver saver;
  Metrics metrics;
  StepChain chain;
  SkippedSteps skipped;
  TimeLimit time_limit;
  StopRequests requests;
  CancelVote cancel_vote;  // of an update or a validation

  /// Restores each service from the beginning.
  TrainerServices(const RunRequest& run, const RunData& data, const RunModel& model,
                  const Beginning& beginning, const ComputePeak& peak, RunMeasures& measures,
                  RunRecord& record);

  /// Opens the sinks of the metrics on rank 0, once the journal holds this attempt.
  void open_sinks(const RunRequest& run, const Beginning& beginning);

  /// Puts chain, skipped steps and windows of z-scores into the values of a checkpoint.
  void put_history(RunValues& values) const;

 private:
  void restore(const RunRequest& run, const Beginning& beginning);
};

}  // namespace trireme
