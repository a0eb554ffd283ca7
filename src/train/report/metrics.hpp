#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/measures.hpp"
#include "train/health/spike.hpp"
#include "train/report/sinks.hpp"

namespace trireme {

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

/// What tokens per second are compared with for MFU.
struct ComputeRates {
  double flops_per_token = 0;
  double peak_flops = 1;  // of all ranks together
};

/// Reduces the measures of all ranks with one packed asynchronous all-gather a report, read one
/// report later so that no step waits for it, and hands the line to the sinks of rank 0. A step
/// ends when its last rank ends it, so that step times add up to the clock.
class Metrics {
 public:
  /// Declares "loss" (weighted by its terms) and "num_targets"; others declare theirs beside it.
  Metrics(Communicator& world, Measures& measures, const ComputeRates& rates);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Before the first line.
  void add(std::unique_ptr<MetricsSink> sink) { sinks_.push_back(std::move(sink)); }

  /// Of the step to be reported, on this rank: sum over its terms, their number, and that of its
  /// valid targets.
  void loss(double sum, std::int64_t num_terms, std::int64_t num_targets);

  /// Starts the reduction of a report. `ended_s`: the last step's end, since the run's first step
  /// began. Completes the one before it and returns its line (on every rank).
  std::optional<MetricsLine> report(const StepFacts& facts, double ended_s);
  /// Completes the pending reduction; after it all lines are with the sinks.
  std::optional<MetricsLine> flush();
  /// An event between steps: the line as it is. `time` comes with the end of a run.
  void write(const MetricsLine& line);
  /// Before other output of this process.
  void pause();

  /// The windows of the z-scores (SpikeDetector::text), for a checkpoint, and back.
  [[nodiscard]] std::string loss_window() const { return loss_spikes_.text(); }

  [[nodiscard]] std::string grad_norm_window() const { return grad_norm_spikes_.text(); }

  void restore_windows(const std::string& loss, const std::string& grad_norm);

 private:
  void score(MetricsLine& line);

  Communicator& world_;
  Measures& measures_;
  ComputeRates rates_;
  Measures::Id loss_;
  Measures::Id num_targets_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
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
