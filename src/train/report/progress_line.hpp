#pragma once
#include <cstdint>
#include <string>

#include "train/report/sinks.hpp"

namespace trireme::train {

/// The progress line. On a terminal one line is redrawn. In a batch log, full lines without
/// carriage return are written every `log_every` steps and for the first and last step.
class ProgressLine final : public MetricsSink {
 public:
  explicit ProgressLine(const SinkSetup& setup);

  /// Shows lines of steps only; events are in the log.
  void write(const MetricsLine& line) override;
  /// Ends the redrawn line.
  void pause() override;

  /// The lines go to the log, which has a thread of its own (core/background_log.hpp).
  [[nodiscard]] bool writes_files() const override { return false; }

 private:
  [[nodiscard]] std::string eta(std::int64_t step, double step_time_s);

  static constexpr std::int64_t kEtaSteps = 1000;  // number of steps that the mean rate covers

  std::int64_t first_step_;
  std::int64_t last_step_;  // last step that was shown
  std::int64_t total_steps_;
  std::int64_t log_every_;
  bool terminal_;
  bool open_ = false;
  double smooth_step_s_ = 0;
};

/// Formats a count with a unit: 1240000 -> "1.24M".
std::string format_count(double value);

}  // namespace trireme::train
