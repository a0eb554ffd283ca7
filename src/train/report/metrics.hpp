#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/timer.hpp"
#include "train/health/spike.hpp"

namespace trireme {

/// What one rank measured: loss of the reported step, times summed over all steps since the last
/// report. Parts of a step's time overlap: waiting for other ranks during a save is in both.
struct StepMeasures {
  double loss_sum = 0;  // of this rank's valid targets
  double num_targets = 0;
  double ended_s = 0;         // the last step's end, since the run's first step began
  double data_wait_s = 0;     // waiting for the loader
  double save_s = 0;          // checkpoints since the step before, and waiting for their copies
  double validation_s = 0;    // since the step before
  double peer_wait_s = 0;     // waiting for other ranks, wherever that was
  double comm_s = 0;          // a gradient collective was in flight
  double comm_exposed_s = 0;  // of it, with nothing else to do
  double first_bucket_s = 0;  // from a step's start until its first gradient bucket left
  double last_grad_s = 0;     // from a step's start until its last gradient was complete
  double mem_peak_bytes = 0;
};

/// What is the same on every rank and needs no reduction.
struct StepFacts {
  std::int64_t step = 0;
  std::int64_t tokens = 0;       // positions trained on since step 0, all ranks
  std::int64_t step_tokens = 0;  // of one step
  std::int64_t num_steps = 1;    // since the last report
  double grad_norm = 0;
  double lr = 0;
  double loss_scale = 1;
  bool skipped = false;  // a loss or gradient was not finite: no update
};

/// One line of metrics.jsonl.
struct MetricsLine {
  StepFacts facts;
  double time = 0;         // Unix s
  double loss = 0;         // sum over all ranks / valid targets of all ranks
  double step_time_s = 0;  // from the end of the step before (the run's start) to its own end
  StepMeasures mean;       // parts: mean over ranks and steps; mem_peak_bytes: largest
  double tokens_per_s = 0;
  double mfu = 0;
  int slowest_rank = 0;          // kept the others waiting: it waited least
  std::optional<double> loss_z;  // robust z-scores against the lines before (spike.hpp)
  std::optional<double> grad_norm_z;
};

/// How a run, or its part between two starts, ended: the last line that it writes.
struct ClosingLine {
  bool done = false;  // else stopped on request
  std::int64_t step = 0;
  std::int64_t steps = 0;   // of this part
  std::int64_t tokens = 0;  // of this part
  double time_s = 0;        // from its first step's begin to the end of its last save
};

/// Reduces measures over all ranks with one packed asynchronous all-gather a report, read
/// one report later so that no step waits for it; ranks are added in rank order, in fp64.
/// Rank 0 appends the lines. A step ends when its last rank ends it, so that step
/// times add up to the clock.
class Metrics {
 public:
  /// `flops_per_token` and `peak_flops_total` (all ranks together) give MFU. A half line that a
  /// lost process left at the end of `file` is cut off, so that every line parses.
  Metrics(Communicator& world, std::filesystem::path file, double flops_per_token,
          double peak_flops_total);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Starts the reduction of a report; completes the one before it and returns
  /// its line (on every rank).
  std::optional<MetricsLine> report(const StepFacts& facts, const StepMeasures& measures);
  /// Completes the pending reduction; after it all lines are on disk as far as
  /// the process can tell.
  std::optional<MetricsLine> flush();

  /// The windows of the z-scores, for a checkpoint, and back.
  void put_spikes(std::map<std::string, std::string>& values) const;
  void restore_spikes(const std::map<std::string, std::string>& values);

  void write_resumed(std::int64_t step);
  void write_closing(const ClosingLine& closing);
  void write_validation(std::int64_t step, double loss, double num_targets);

 private:
  void append(const std::string& line);
  void score(MetricsLine& line);

  Communicator& world_;
  std::filesystem::path file_;
  double flops_per_token_;
  double peak_flops_;
  StepFacts pending_facts_;
  double pending_time_ = 0;
  double ended_s_ = 0;  // the last reported step, on its last rank
  std::vector<double> mine_;
  std::vector<double> all_;
  WorkPtr pending_;
  SpikeDetector loss_spikes_;
  SpikeDetector grad_norm_spikes_;
  std::int64_t warned_step_ = 0;
};

}  // namespace trireme
