#pragma once
#include "train/report/sinks.hpp"

namespace trireme::train {

/// Writes metrics.jsonl, and samples.jsonl with generated samples: one JSON object per line. Numbers
/// have the shortest form that reads back to the same bits; NaN and infinity become null. Each line ends with `attempt`: after a kill,
/// steps since the last checkpoint are repeated, and the last line of a step counts.
class JsonlSink final : public MetricsSink {
 public:
  /// Removes an incomplete last line that a lost process left, so that every line parses.
  explicit JsonlSink(const SinkSetup& setup);

  /// Writes each line with one call, so that readers see complete lines only. Throws
  /// Error(resource) if the disk is full.
  void write(const MetricsLine& line) override;

 private:
  std::filesystem::path file_;
  std::filesystem::path samples_;
  std::int64_t attempt_;
};

/// Writes ranks.jsonl, in the same format: one line per rank for each reported step that
/// train.log_every selects.
class RanksSink final : public MetricsSink {
 public:
  struct Config {
    bool per_rank = false;

    template <class Self, class Visit>
    static void fields(Self& self, Visit&& visit) {
      visit(
          "per_rank", self.per_rank,
          "write the times and the memory of each rank to ranks.jsonl, every train.log_every steps");
    }

    [[nodiscard]] bool on() const { return per_rank; }

    friend void check(const Config&, Problems&) {}
  };

  explicit RanksSink(const SinkSetup& setup);
  void write(const MetricsLine& line) override;

 private:
  std::filesystem::path file_;
  std::int64_t attempt_;
};

}  // namespace trireme::train
