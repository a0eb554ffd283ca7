#pragma once
#include "train/report/sinks.hpp"

namespace trireme::train {

/// Writes RUN/tensorboard/events.out.tfevents.*: every number of a step as a scalar, the
/// histograms of layers, generated samples as texts, the configuration as hyperparameters and as a
/// text. Each attempt has its own file. The file of a resumed run begins with START events, which
/// make TensorBoard hide later steps of earlier attempts.
class TensorboardSink final : public MetricsSink {
 public:
  struct Config {
    bool tensorboard = false;

    template <class Self, class Visit>
    static void fields(Self& self, Visit&& visit) {
      visit("tensorboard", self.tensorboard,
            "write TensorBoard event files to the directory tensorboard of the run");
    }

    [[nodiscard]] bool on() const { return tensorboard; }

    friend void check(const Config&, Problems&) {}
  };

  explicit TensorboardSink(const SinkSetup& setup);
  void write(const MetricsLine& line) override;

 private:
  void append(const std::string& records);

  std::filesystem::path file_;
  std::int64_t step_;
};

}  // namespace trireme::train
