#pragma once
#include <optional>

#include "train/report/protobuf.hpp"
#include "train/report/sinks.hpp"

namespace trireme::train {

/// A file of records in the LevelDB log format with the header of Weights & Biases. Source:
/// wandb/sdk/internal/datastore.py, version 0.19.
class WandbLog {
 public:
  /// Opens or creates the file. Keeps the records before the first one that is incomplete or for
  /// which `keep` returns false, and removes the rest.
  WandbLog(std::filesystem::path file, const std::function<bool(std::string_view record)>& keep);

  [[nodiscard]] std::int64_t num_records() const { return num_records_; }

  void append(const std::string& record);

 private:
  std::filesystem::path file_;
  std::uint64_t size_ = 0;
  std::int64_t num_records_ = 0;
};

/// Writes RUN/wandb/offline-run-TIME-ID/run-ID.wandb for `wandb sync`. All attempts of a run append
/// to one file. A resumed run first removes the rows of later steps, so that no step is twice.
class WandbSink final : public MetricsSink {
 public:
  struct Config {
    bool wandb = false;

    template <class Self, class Visit>
    static void fields(Self& self, Visit&& visit) {
      visit("wandb", self.wandb,
            "write an offline run of Weights & Biases to the directory wandb of the run");
    }

    [[nodiscard]] bool on() const { return wandb; }

    friend void check(const Config&, Problems&) {}
  };

  explicit WandbSink(const SinkSetup& setup);
  void write(const MetricsLine& line) override;

 private:
  /// The numbers and histograms of one step. A validation comes before the line of its step and
  /// joins its row.
  struct Row {
    std::int64_t step = 0;
    std::map<std::string, double> numbers{};
    std::map<std::string, std::vector<double>> histograms{};  // counts of ExponentialBuckets
  };

  void begin(const SinkSetup& setup);
  void append_row();
  void append(std::uint32_t kind, const Protobuf& message);

  std::optional<WandbLog> log_;
  double began_s_;
  std::optional<Row> row_;
  std::map<std::string, double> newest_;
};

}  // namespace trireme::train
