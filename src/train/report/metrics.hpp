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

namespace trireme::train {

/// Facts of a step that are the same on all ranks and need no reduction.
struct StepFacts {
  std::int64_t step = 0;
  std::int64_t tokens = 0;       // positions that all ranks trained on since step 0
  std::int64_t step_tokens = 0;  // positions of this step
  std::int64_t num_steps = 1;    // steps since the last report
  double grad_norm = 0;
  double lr = 0;
  double loss_scale = 1;
  bool skipped = false;  // a loss or gradient was not finite: no update
};

/// Reference rates for MFU.
struct ComputeRates {
  double flops_per_token = 0;
  double peak_flops = 1;  // sum over all ranks
};

/// Combines the measures of all ranks with one packed asynchronous all-gather per report, and
/// passes the line to the sinks of rank 0. The result is read one report later, so that no step
/// waits. A step ends when its slowest rank ends it, so step times add up to wall-clock time.
class Metrics {
 public:
  /// Declares the measures "loss" (weighted by its terms) and "num_targets".
  Metrics(comm::Communicator& world, Measures& measures, const ComputeRates& rates);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Adds a sink. Call it before the first line.
  void add(std::unique_ptr<MetricsSink> sink) { sinks_.push_back(std::move(sink)); }

  /// Records the loss of the next reported step on this rank: sum over its terms, number of terms
  /// and number of valid targets.
  void loss(double sum, std::int64_t num_terms, std::int64_t num_targets);

  /// Starts the reduction of a report and completes the previous one. `ended_s`: end of the last
  /// step in seconds since the first step of the run began. Returns the previous line on every
  /// rank.
  std::optional<MetricsLine> report(const StepFacts& facts, double ended_s);
  /// Completes the pending reduction, so that the sinks have all lines.
  std::optional<MetricsLine> flush();
  /// Writes an event between steps without change.
  void write(const MetricsLine& line);
  /// Prepares the sinks for other output of this process.
  void pause();

  /// Windows of the z-scores (SpikeDetector::text), which a checkpoint stores and restores.
  [[nodiscard]] std::string loss_window() const { return loss_spikes_.text(); }

  [[nodiscard]] std::string grad_norm_window() const { return grad_norm_spikes_.text(); }

  void restore_windows(const std::string& loss, const std::string& grad_norm);

 private:
  void score(MetricsLine& line);

  comm::Communicator& world_;
  Measures& measures_;
  ComputeRates rates_;
  Measures::Id loss_;
  Measures::Id num_targets_;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;
  StepFacts pending_facts_;
  double pending_time_ = 0;
  double ended_s_ = 0;  // end of the last reported step on its slowest rank
  std::vector<double> mine_;
  std::vector<double> all_;
  comm::WorkPtr pending_;
  SpikeDetector loss_spikes_;
  SpikeDetector grad_norm_spikes_;
  std::int64_t warned_step_ = 0;
};

}  // namespace trireme::train
