#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "report/task_metrics.hpp"

namespace trireme::report {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// A line of metrics.jsonl about one step, or the mean over `num_steps` steps
/// (train.metrics_every). Values that the line lacks are NaN, or -1 for whole numbers.
struct StepLine {
  std::int64_t attempt = 0;  // number of the attempt, from 0
  std::int64_t step = 0;
  std::int64_t num_steps = 0;  // 0: unknown, in the first line of an attempt
  double time = kUnknown;      // Unix time
  double loss = kUnknown;
  double grad_norm = kUnknown;
  double lr = kUnknown;
  double tokens = kUnknown;  // since step 0
  double tokens_per_s = kUnknown;
  double mfu = kUnknown;
  double step_time_s = 0;
  double data_wait_s = 0;
  double comm_exposed_s = 0;
  double save_s = 0;
  double validation_s = 0;
  double peer_wait_s = kUnknown;
  double energy_j = kUnknown;  // energy of one step, all ranks together
  std::int32_t slowest_rank = -1;
  std::int32_t slowest_host = -1;   // index in MetricsFile::words
  std::int32_t slowest_phase = -1;  // index in MetricsFile::words

  /// Returns the seconds of all steps of this line.
  [[nodiscard]] double seconds() const { return step_time_s * static_cast<double>(num_steps); }
};

/// The norms of layers in a line of metrics.jsonl (metrics.layer_norms).
struct LayerLine {
  std::size_t line = 0;        // index in MetricsFile::steps
  std::vector<double> values;  // one value for each of MetricsFile::layer_names; NaN: unknown
};

/// The values of a metric of the task: one for each of MetricsFile::steps; NaN: unknown.
struct TaskSeries {
  TaskMetric metric;
  std::vector<double> values;
};

struct ValidationPoint {
  std::int64_t attempt = 0;
  std::int64_t step = 0;
  double loss = kUnknown;
  double seconds = 0;        // duration; 0 in files of older versions
  double reward = kUnknown;  // only rl
};

/// The last line of an attempt that ended without failure.
struct ClosingLine {
  std::int64_t attempt = 0;
  std::int64_t step = 0;
  double time_s = kUnknown;  // from the start of the first step to the end of the last save
};

/// The content of metrics.jsonl in file order.
struct MetricsFile {
  std::vector<StepLine> steps;
  std::vector<LayerLine> layer_lines;
  std::vector<std::string> layer_names;  // such as grad_norm/layer_03
  std::vector<TaskSeries> task_series;
  std::vector<ValidationPoint> validations;
  std::vector<ClosingLine> closings;
  std::vector<std::string> words;  // host and phase names, each once
  std::int64_t damaged_lines = 0;
  std::int64_t first_damaged = 0;  // its line number, from 1
};

/// Reads metrics.jsonl line by line; returns an empty object if the file does not exist. Skips and
/// counts damaged lines. Ignores an incomplete last line, because a run may be writing it.
MetricsFile read_metrics_file(const std::filesystem::path& file);

}  // namespace trireme::report
