#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/format_count.hpp"
#include "core/progress.hpp"
#include "train/report/sinks.hpp"

namespace trireme::train {

/// The progress line (core/progress.hpp). In a batch log, the first and the last step have a line,
/// and every `log_every`-th step if the last line is at least 30 s old. Inside a job, the line
/// compares the ETA with the end of the job.
class ProgressLine final : public MetricsSink {
 public:
  explicit ProgressLine(const SinkSetup& setup, double log_period_s = kProgressLogPeriod_s);

  /// Shows lines of steps only; events are in the log.
  void write(const MetricsLine& line) override;
  /// Ends the redrawn line.
  void pause() override;

  /// The lines go to the log, which has a thread of its own (core/background_log.hpp).
  [[nodiscard]] bool writes_files() const override { return false; }

 private:
  /// Returns the seconds to the last step.
  [[nodiscard]] double left_s(std::int64_t step, double step_time_s);

  static constexpr std::int64_t kEtaSteps = 1000;  // number of steps that the mean rate covers

  std::int64_t first_step_;
  std::int64_t last_step_;  // last step that was shown
  std::int64_t total_steps_;
  std::int64_t log_every_;
  ProgressOutput output_;
  std::optional<double> job_start_;
  std::optional<double> job_end_;
  double smooth_step_s_ = 0;
};

/// Returns the remaining time, and inside a job how it fits: "ETA 1h02m (done at 05:43, job ends
/// 07:00)", "ETA 9h00m (job ends 07:00, needs 2 more jobs)". Times are Unix seconds; the clock is
/// local. `job_start` gives the length of the next jobs.
std::string eta_text(double left_s, double now_s, std::optional<double> job_start,
                     std::optional<double> job_end);

}  // namespace trireme::train
