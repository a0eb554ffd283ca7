#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "generate/engine.hpp"

namespace trireme {

/// How often values were at most each bound, as Prometheus counts. From any thread.
class Histogram {
 public:
  static constexpr std::array<double, 16> kBounds_s{
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};

  void add(double seconds);
  /// The lines of `name`, with its type.
  [[nodiscard]] std::string text(const char* name, const char* help) const;

 private:
  mutable std::mutex mutex_;
  std::array<std::uint64_t, kBounds_s.size() + 1> counts_{};
  double sum_ = 0;
};

/// What a server measures itself; the rest are the engine's counters.
struct ServeMetrics {
  Histogram first_token_s;  // from a request's arrival to the first token of each answer
  Histogram inter_token_s;  // between two tokens of an answer
  Histogram request_s;      // from arrival to the end of the last answer
};

/// All of it in Prometheus' text format, version 0.0.4.
std::string metrics_text(const ServeMetrics& metrics, const EngineCounters& counters);

}  // namespace trireme
