#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "core/measures.hpp"

namespace trireme {

/// What a run tells: a step, or one of the events between steps. Metrics in the order they are
/// shown.
struct MetricsLine {
  enum class Kind { step, resumed, validation, end };

  Kind kind = Kind::step;
  std::vector<Metric> metrics;

  MetricsLine& add(std::string_view name, double value);
  MetricsLine& add(std::string_view name, std::int64_t value);
  MetricsLine& add(std::string_view name, bool value);

  /// Throws Error(internal) if there is none of this name.
  [[nodiscard]] double value(std::string_view name) const;
};

/// Where metrics go. On rank 0 only.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  virtual void write(const MetricsLine& line) = 0;

  /// Before other output of this process: ends what is half shown.
  virtual void pause() {}
};

/// What the sinks of a run are made from.
struct SinkSetup {
  std::filesystem::path file{};  // metrics.jsonl
  std::int64_t first_step = 0;   // that this start of the run begins after
  std::int64_t total_steps = 0;
  std::int64_t log_every = 1;
  std::int64_t attempt = 0;  // the number of this start of the run, from 0
};

/// All sinks, one of each row of the table in sinks.cpp. Throws what opening one throws.
std::vector<std::unique_ptr<MetricsSink>> make_sinks(const SinkSetup& setup);

}  // namespace trireme
