#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "generate/engine.hpp"

namespace trireme::serve {

/// A Prometheus histogram: it counts the values up to each bound. Thread-safe.
class Histogram {
 public:
  static constexpr std::array<double, 16> kBounds_s{
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

  void add(double seconds);
  /// Returns the metric `name` in Prometheus text format.
  [[nodiscard]] std::string text(const char* name, const char* help) const;

 private:
  mutable std::mutex mutex_;
  std::array<std::uint64_t, kBounds_s.size() + 1> counts_{};
  double sum_ = 0;
};

/// The times that the server measures. All other metrics come from the counters of the engine.
struct ServeMetrics {
  Histogram first_token_s;  // from the arrival of a request to the first token of each answer
  Histogram inter_token_s;  // between two tokens of an answer
  Histogram request_s;      // from arrival to the end of the last answer
};

/// Returns all metrics in Prometheus text format 0.0.4.
std::string metrics_text(const ServeMetrics& metrics, const generate::EngineCounters& counters);

}  // namespace trireme::serve
