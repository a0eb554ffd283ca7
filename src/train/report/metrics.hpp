#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/measures.hpp"
#include "core/writer_thread.hpp"
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

/// Combines the measures of all ranks and passes the line to the sinks of rank 0. The numbers of a
/// report travel with the next stop vote (control/step_vote.hpp), so that no step waits and a step
/// has one small reduction. A step ends when its slowest rank ends it, so step times add up to
/// wall-clock time.
class Metrics {
 public:
  /// Declares the measures "loss" (weighted by its terms) and "num_targets". `files`: the thread
  /// that writes the files of sinks; null: the caller writes them.
  Metrics(comm::Communicator& world, Measures& measures, const ComputeRates& rates,
          WriterThread* files = nullptr);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Adds a sink. Call it before the first line.
  void add(std::shared_ptr<MetricsSink> sink) { sinks_.push_back(std::move(sink)); }

  /// Sets the host of each rank on rank 0, for the lines of steps. Other ranks do not know hosts.
  void set_hosts(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }

  /// Gathers the numbers of each rank for Kind::rank lines, every `every` steps; 0: never. `ids`:
  /// the measures; means are over the steps since the last lines. The gathering is one all-gather,
  /// read a report later.
  void report_ranks(std::int64_t every, std::vector<Measures::Id> ids);

  /// Records the loss of the next reported step on this rank: sum over its terms, number of terms
  /// and number of valid targets.
  void loss(double sum, std::int64_t num_terms, std::int64_t num_targets);

  /// Begins a report with the recorded measures. `ended_s`: end of the last step in seconds since
  /// the first step of the run began. If no vote has carried the previous report, this function
  /// completes it and returns its line on every rank.
  std::optional<MetricsLine> report(const StepFacts& facts, double ended_s);

  struct Numbers {
    std::span<double> sums{};
    std::span<double> maxima{};
  };

  /// Returns the numbers of the report for a reduction over all ranks; empty without a report. The
  /// caller reduces them in place: sums in rank order, and maxima. Then it calls reduced().
  Numbers begin_reduction();
  /// Completes the report that begin_reduction() has returned. Returns its line on every rank;
  /// nullopt if there was no report.
  std::optional<MetricsLine> reduced();
  /// Reduces and completes a report that no vote has carried, so that the sinks have all lines.
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
  /// The numbers of a report before and after their reduction.
  struct Report {
    StepFacts facts;
    double time = 0;
    std::vector<double> sums;
    std::vector<double> maxima;  // the end of the step first
    std::vector<Measures::Id> packed;
  };

  [[nodiscard]] MetricsLine line_of(const Report& report);
  void gather_ranks(const StepFacts& facts);
  void write_ranks();
  void score(const StepFacts& facts, MetricsLine& line);

  comm::Communicator& world_;
  Measures& measures_;
  ComputeRates rates_;
  Measures::Id loss_;
  Measures::Id num_targets_;
  WriterThread* files_;
  std::vector<std::shared_ptr<MetricsSink>> sinks_;
  std::vector<std::string> hosts_;
  std::optional<Report> next_;     // waits for its reduction
  std::optional<Report> reduced_;  // takes part in a reduction now
  double ended_s_ = 0;             // end of the last reported step on its slowest rank
  std::int64_t ranks_every_ = 0;
  std::vector<Measures::Id> rank_ids_;
  std::int64_t ranks_step_ = 0;
  std::vector<double> rank_sums_;  // since the last lines of ranks
  std::int64_t rank_num_steps_ = 0;
  std::vector<double> own_numbers_;
  std::vector<double> rank_numbers_;
  comm::WorkPtr ranks_work_;
  SpikeDetector loss_spikes_;
  SpikeDetector grad_norm_spikes_;
  std::int64_t warned_step_ = 0;
};

}  // namespace trireme::train
