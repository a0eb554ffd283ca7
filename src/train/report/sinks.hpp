#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/fields.hpp"
#include "core/measures.hpp"
#include "core/own_keys.hpp"
#include "core/problems.hpp"
#include "job/run_directory.hpp"
#include "train/config/config.hpp"

namespace trireme::train {

/// A line of metrics: one step, or an event between steps. Metrics are in display order.
struct MetricsLine {
  enum class Kind {
    step,
    resumed,
    validation,
    end,
    commit,  // a checkpoint is published: "committed_step"
    sample,  // a generated text of a validation: "sample_step", "sample", "prompt", "text"
    rank     // one rank's own numbers of a step, with metrics.per_rank
  };

  Kind kind = Kind::step;
  std::vector<Metric> metrics{};

  MetricsLine& add(std::string_view name, double value);
  MetricsLine& add(std::string_view name, std::int64_t value);
  MetricsLine& add(std::string_view name, bool value);
  MetricsLine& add_text(std::string_view name, std::string text);

  /// Returns the value of a metric. Throws Error(internal) if there is none of this name.
  [[nodiscard]] double value(std::string_view name) const;
  [[nodiscard]] double value_or(std::string_view name, double other) const;
  /// Returns the text of a metric; "" if there is none of this name.
  [[nodiscard]] std::string text(std::string_view name) const;

 private:
  [[nodiscard]] const Metric* find(std::string_view name) const;
};

/// Receives the metrics of a run, on rank 0 only. A sink may hold a connection during its
/// lifetime. A sink ignores kinds of lines that it does not know.
///
/// To add one, write
///   a class with a constructor of (const SinkSetup&)
///   for keys in [metrics]: a struct `Config` in the class with fields() and `bool on() const` (true
///   if the keys turn the sink on), and a function check(const Config&, Problems&)
///   a row in sinks.cpp
class MetricsSink {
 public:
  /// If no line of Kind::end was written, the attempt has failed.
  virtual ~MetricsSink() = default;

  /// An attempt that ends without failure writes a last line of Kind::end. Its metric `done` is 1
  /// if the run is complete and 0 if a request stopped it.
  virtual void write(const MetricsLine& line) = 0;

  /// Completes partial output before this process writes other output.
  virtual void pause() {}

  /// Returns true if write() may wait for a file system. The writer thread then calls it, otherwise
  /// the training thread. One thread at a time calls the sink.
  [[nodiscard]] virtual bool writes_files() const { return true; }
};

/// Facts of a run that its sinks are made from.
struct SinkSetup {
  job::RunDirectory folder{};
  std::string run_id{};                         // equal in all attempts of a run
  std::string task{};                           // for example "pretrain"
  std::map<std::string, std::string> config{};  // resolved keys: "optim.lr" -> "0.0003"
  std::int64_t num_ranks = 1;
  std::string job{};            // job id of the scheduler, "" outside a job
  std::int64_t attempt = 0;     // number of this attempt, from 0
  std::int64_t first_step = 0;  // the attempt begins after this step
  std::int64_t total_steps = 0;
  std::int64_t log_every = 1;
  std::vector<OwnKey> keys{};  // keys of all sinks

  /// Returns the last name of the run directory.
  [[nodiscard]] std::string run_name() const;

  /// Returns the keys of one sink.
  template <class Config>
  [[nodiscard]] Config own() const {
    return read_own_keys<Config>(keys);
  }
};

/// Defines what happens if a sink cannot be opened or written.
enum class SinkFailure {
  ends_attempt,  // the error ends the attempt, because the sink is part of the run's records
  is_logged,     // one warning; the run continues without the sink
};

struct SinkRow {
  const char* name;
  const char* help;
  SinkFailure failure;
  std::unique_ptr<MetricsSink> (*make)(const SinkSetup& setup);
  std::vector<OwnKey> (*keys)() = nullptr;  // null, like the next two, if the sink has no keys
  bool (*is_on)(const std::vector<OwnKey>& keys) = nullptr;
  void (*check)(const std::vector<OwnKey>& keys, Problems& problems) = nullptr;
};

template <class Sink>
constexpr SinkRow sink_row(const char* name, const char* help, SinkFailure failure) {
  SinkRow row{name, help, failure, [](const SinkSetup& setup) -> std::unique_ptr<MetricsSink> {
                return std::make_unique<Sink>(setup);
              }};
  if constexpr (requires { typename Sink::Config; }) {
    using Config = typename Sink::Config;
    row.keys = own_keys<Config>;
    row.is_on = [](const std::vector<OwnKey>& keys) { return read_own_keys<Config>(keys).on(); };
    row.check = [](const std::vector<OwnKey>& keys, Problems& problems) {
      check(read_own_keys<Config>(keys), problems);
    };
  }
  return row;
}

/// Returns the table of sinks. Tests pass other rows to the functions below.
std::span<const SinkRow> sink_rows();

/// Adds the keys of all sinks to `config`, and returns the fields of section [metrics].
std::vector<Field> sink_fields(MetricsConfig& config, std::span<const SinkRow> rows = sink_rows());

/// Returns true if the configuration turns on the sink of this name.
bool is_sink_on(const MetricsConfig& config, std::string_view name,
                std::span<const SinkRow> rows = sink_rows());

void check_sinks(const MetricsConfig& config, Problems& problems,
                 std::span<const SinkRow> rows = sink_rows());

/// Opens the sinks that `config` turns on, in table order. Throws the error of a sink with
/// SinkFailure::ends_attempt.
std::vector<std::unique_ptr<MetricsSink>> make_sinks(const MetricsConfig& config, SinkSetup setup,
                                                     std::span<const SinkRow> rows = sink_rows());

}  // namespace trireme::train
