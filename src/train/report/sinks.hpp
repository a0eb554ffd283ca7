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
#include "job/run_folder.hpp"
#include "train/config/config.hpp"

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

/// Receives the metrics of a run, on rank 0 only. It may hold a connection for as long as it lives.
///
/// A sink is a file with
///   a class with a constructor of (const SinkSetup&)
///   if it has keys in [metrics]: a struct `Config` in the class, with fields(), `bool on() const`
///   (the keys turn the sink on, also if metrics.sinks does not name it) and a function
///   check(const Config&, Problems&)
/// and a row in sinks.cpp.
class MetricsSink {
 public:
  /// If no line of Kind::end came before, the attempt failed.
  virtual ~MetricsSink() = default;

  /// The last line of an attempt that ends by itself has Kind::end; `done` is then 1 if the run is
  /// complete and 0 if a request stopped it.
  virtual void write(const MetricsLine& line) = 0;

  /// Before other output of this process: ends what is half shown.
  virtual void pause() {}
};

/// The facts of a run that its sinks are made from.
struct SinkSetup {
  RunFolder folder{};
  std::string run_id{};                         // the same in all attempts of the run
  std::string task{};                           // "pretrain"
  std::map<std::string, std::string> config{};  // the resolved keys: "optim.lr" -> "0.0003"
  std::int64_t num_ranks = 1;
  std::int64_t attempt = 0;     // number of this attempt, from 0
  std::int64_t first_step = 0;  // the attempt begins after this step
  std::int64_t total_steps = 0;
  std::int64_t log_every = 1;
  std::vector<OwnKey> keys{};  // those of all sinks

  /// Returns the keys of one sink.
  template <class Config>
  [[nodiscard]] Config own() const {
    return read_own_keys<Config>(keys);
  }
};

/// The effect of a sink that cannot be opened or written.
enum class SinkFailure {
  ends_attempt,  // the error ends the attempt: the sink is part of the run's record
  is_logged,     // one warning; the run continues without the sink
};

/// One row of the table of sinks.
struct SinkRow {
  const char* name;
  const char* help;
  SinkFailure failure;
  std::unique_ptr<MetricsSink> (*make)(const SinkSetup& setup);
  std::vector<OwnKey> (*keys)() = nullptr;  // null, as the next two, for a sink without keys
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

/// The table of sinks. The functions below take other rows for tests.
std::span<const SinkRow> sink_rows();

/// Adds the keys of all sinks to `config`, and returns the fields of section [metrics].
std::vector<Field> sink_fields(MetricsConfig& config, std::span<const SinkRow> rows = sink_rows());

void check_sinks(const MetricsConfig& config, Problems& problems,
                 std::span<const SinkRow> rows = sink_rows());

/// Opens the sinks that `config` turns on, in the order of the table. Throws what opening a sink
/// of SinkFailure::ends_attempt throws.
std::vector<std::unique_ptr<MetricsSink>> make_sinks(const MetricsConfig& config, SinkSetup setup,
                                                     std::span<const SinkRow> rows = sink_rows());

}  // namespace trireme
