#pragma once

#include "train/control/step_vote.hpp"
#include "train/control/stop_requests.hpp"
#include "train/health/early_stop.hpp"
#include "train/health/skipped_steps.hpp"
#include "train/report/metrics.hpp"
#include "train/run/compute_peak.hpp"
#include "train/run/run_energy.hpp"
#include "train/run/run_record.hpp"
#include "train/start/begin.hpp"
#include "train/state/saver.hpp"
#include "train/step/step_hash_log.hpp"

namespace trireme::train {

/// Measures that the training loop records; seconds are those of this rank.
struct RunMeasures {
  // Other components also declare their measures here.
  Measures all;
  // Seconds of the phases of a step. They and the waiting time add up to the step time of a rank.
  Measures::Id data_wait_s =  // time without data from the loader
      all.declare(
          {.name = "data_wait_s", .most_rank = "data_wait_max_rank", .most = "data_wait_max_s"});
  Measures::Id compute_s =  // time of updates without waiting for other ranks
      all.declare({.name = "compute_s", .most_rank = "compute_max_rank", .most = "compute_max_s"});
  Measures::Id other_s =  // time between updates: saves, validations, records
      all.declare({.name = "other_s", .most_rank = "other_max_rank", .most = "other_max_s"});
  // The next two and peer_wait_s are recorded only if the host waits for other ranks. With NCCL,
  // the device waits.
  Measures::Id comm_s =  // communication time in the update
      all.declare({.name = "comm_s", .occasional = true});
  Measures::Id comm_exposed_s = all.declare({.name = "comm_exposed_s", .occasional = true});
  Measures::Id save_s = all.declare({"save_s"});              // time of saves, including copies
  Measures::Id validation_s = all.declare({"validation_s"});  // since the previous step
  /// The time that this rank waited for other ranks in collectives. The rank with the least waiting
  /// time is the slowest rank.
  Measures::Id peer_wait_s = all.declare({.name = "peer_wait_s",
                                          .occasional = true,
                                          .least_rank = "slowest_rank",
                                          .least = "peer_wait_min_s"});
  Measures::Id mem_peak_bytes = all.declare({"mem_peak_bytes", Combine::max, /*whole=*/true});
};

/// Services around the steps of a run: saves, metrics, step hash log, skipped steps, stop requests.
struct TrainerServices {
  WriterThread files;  // appends to the files of the run: metrics, step hash log
  CheckpointSaver saver;
  Metrics metrics;
  StepVote vote;
  StepHashLog chain;
  SkippedSteps skipped;
  EarlyStop early_stop;
  TimeLimit time_limit;
  StopRequests requests;
  RunEnergy energy;
  CancelVote cancel_vote;  // cancels an update or a validation

  /// Creates each service with its saved state.
  TrainerServices(const RunRequest& run, const RunData& data, const RunModel& model,
                  const StartState& beginning, const ComputePeak& peak, RunMeasures& measures,
                  RunRecord& record);

  /// Opens the metrics sinks on rank 0. Call it after the event log holds this attempt.
  void open_sinks(const RunRequest& run, const StartState& beginning);

  /// Puts step hash, skipped steps, early stop and the windows of the z-scores into the values of a checkpoint.
  void put_history(RunValues& values) const;

 private:
  void restore(const RunRequest& run, const StartState& beginning);
};

}  // namespace trireme::train
