#pragma once
#include "train/report/sinks.hpp"

namespace trireme {

/// metrics.jsonl: a JSON object a line, numbers in the shortest form that reads back to the same
/// bits. JSON has no NaN or infinity: null. Each line ends with `attempt`: after a kill, steps since
/// the last checkpoint are taken again, and of several lines of one step the last one counts.
class JsonlSink final : public MetricsSink {
 public:
  /// A half line that a lost process left at the end of the file is cut off, so that every line
  /// parses.
  explicit JsonlSink(const SinkSetup& setup);

  /// One write a line: a reader never sees half of one. Throws Error(resource) on a full disk.
  void write(const MetricsLine& line) override;

 private:
  std::filesystem::path file_;
  std::int64_t attempt_;
};

}  // namespace trireme
