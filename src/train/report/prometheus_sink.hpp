#pragma once
#include <array>
#include <cstdint>
#include <mutex>

#include "core/timer.hpp"
#include "http/http_server.hpp"
#include "train/report/sinks.hpp"

namespace trireme::train {

/// The metrics of a run in the text format of Prometheus, with the labels `run` and `job`. Their
/// number does not depend on the number of ranks. Counters of time and steps begin with this
/// attempt. Source: prometheus.io, "Exposition formats", version 0.0.4.
class PrometheusText {
 public:
  explicit PrometheusText(const SinkSetup& setup);

  void add(const MetricsLine& line);
  [[nodiscard]] std::string text() const;

 private:
  static constexpr std::array kBounds_s{0.01, 0.02, 0.05, 0.1, 0.2,  0.5,  1.0, 2.0,
                                        5.0,  10.0, 20.0, 50., 100., 200., 500.};

  void add_step(const MetricsLine& line);

  std::string labels_;  // run="...",job="..."
  std::int64_t attempt_;
  std::int64_t total_steps_;
  std::int64_t last_step_;
  std::map<std::string, double> phases_s_{};
  std::array<std::uint64_t, kBounds_s.size() + 1> counts_{};
  double step_seconds_ = 0;
  double valid_loss_;
  double valid_bpb_;
  double commit_time_;
  MetricsLine newest_{};
  MetricsLine newest_layers_{};  // the norms of layers, which not every line has
};

/// Serves /metrics over HTTP on rank 0, and writes the address to RUN/prometheus_sd.json for the
/// file-based service discovery of Prometheus. The file is removed at the end.
class PrometheusSink final : public MetricsSink {
 public:
  struct Config {
    std::string listen;

    template <class Self, class Visit>
    static void fields(Self& self, Visit&& visit) {
      visit(
          "listen", self.listen,
          "HOST:PORT at which rank 0 serves /metrics for Prometheus; :PORT is this machine only, port 0 any free port; empty: off");
    }

    [[nodiscard]] bool on() const { return !listen.empty(); }

    friend void check(const Config& config, Problems& problems);
  };

  explicit PrometheusSink(const SinkSetup& setup);
  ~PrometheusSink() override;
  void write(const MetricsLine& line) override;

  /// write() changes only the text, so that a frozen file system does not hide the run.
  [[nodiscard]] bool writes_files() const override { return false; }

 private:
  std::filesystem::path target_file_;
  std::mutex mutex_;
  PrometheusText text_;
  bool is_loopback_ = true;
  std::unique_ptr<http::HttpServer> server_;
};

/// Writes DIR/trireme-JOB.prom for the textfile collector of the node exporter, at most once per
/// second. The file is replaced atomically and removed at the end.
class PrometheusFileSink final : public MetricsSink {
 public:
  struct Config {
    std::string textfile;

    template <class Self, class Visit>
    static void fields(Self& self, Visit&& visit) {
      visit(
          "textfile", self.textfile,
          "directory of the node exporter's textfile collector, for trireme-JOB.prom (without a job: trireme-NAME-ID.prom); empty: off");
    }

    [[nodiscard]] bool on() const { return !textfile.empty(); }

    friend void check(const Config&, Problems&) {}
  };

  explicit PrometheusFileSink(const SinkSetup& setup);
  ~PrometheusFileSink() override;
  void write(const MetricsLine& line) override;

 private:
  std::filesystem::path file_;
  PrometheusText text_;
  Timer since_write_{};
};

}  // namespace trireme::train
