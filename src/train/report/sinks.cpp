#include "train/report/sinks.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "train/report/jsonl_sink.hpp"
#include "train/report/progress_line.hpp"
#include "train/report/prometheus_sink.hpp"
#include "train/report/tensorboard_sink.hpp"
#include "train/report/wandb_sink.hpp"

namespace trireme::train {
namespace {

constexpr const char* kNoSink = "none";

constexpr std::array kSinks{
    sink_row<JsonlSink>("jsonl", "metrics.jsonl in the run directory", SinkFailure::ends_attempt),
    sink_row<RanksSink>("ranks", "ranks.jsonl: times and memory of each rank",
                        SinkFailure::is_logged),
    sink_row<TensorboardSink>("tensorboard", "TensorBoard event files", SinkFailure::is_logged),
    sink_row<WandbSink>("wandb", "an offline run of Weights & Biases", SinkFailure::is_logged),
    sink_row<PrometheusSink>("prometheus", "an HTTP endpoint for Prometheus, see metrics.listen",
                             SinkFailure::is_logged),
    sink_row<PrometheusFileSink>("textfile",
                                 "a file for the node exporter of Prometheus, see metrics.textfile",
                                 SinkFailure::is_logged),
    sink_row<ProgressLine>("progress", "the progress line on the terminal or in the job log",
                           SinkFailure::ends_attempt),
};

/// Forwards to a sink until the sink fails.
class OptionalSink final : public MetricsSink {
 public:
  OptionalSink(const SinkRow& row, const SinkSetup& setup) : name_(row.name) {
    attempt([&] { sink_ = row.make(setup); });
    writes_files_ = sink_ && sink_->writes_files();
  }

  void write(const MetricsLine& line) override {
    if (sink_) attempt([&] { sink_->write(line); });
  }

  void pause() override {
    if (sink_) attempt([&] { sink_->pause(); });
  }

  [[nodiscard]] bool writes_files() const override { return writes_files_; }

 private:
  void attempt(const std::function<void()>& work) {
    const auto error = comm::capture(work);
    if (!error) return;
    log::warn(
        formatted("the metrics sink {} is now off because of an error: {}", name_, error->what()));
    sink_.reset();
  }

  const char* name_;
  bool writes_files_ = false;
  std::unique_ptr<MetricsSink> sink_;
};

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names = split(list, ',');
  for (std::string& name : names) std::erase(name, ' ');
  return names;
}

bool is_on(const SinkRow& row, const MetricsConfig& config) {
  const std::vector<std::string> names = names_in(config.sinks);
  return std::find(names.begin(), names.end(), row.name) != names.end() ||
         (row.is_on != nullptr && row.is_on(config.keys));
}

}  // namespace

std::string SinkSetup::run_name() const {
  const std::filesystem::path& root = folder.root;  // may end in "/"
  return (root.has_filename() ? root : root.parent_path()).filename().string();
}

MetricsLine& MetricsLine::add(std::string_view name, double value) {
  metrics.push_back({std::string(name), value, Metric::Form::real});
  return *this;
}

MetricsLine& MetricsLine::add(std::string_view name, std::int64_t value) {
  metrics.push_back({std::string(name), static_cast<double>(value), Metric::Form::whole});
  return *this;
}

MetricsLine& MetricsLine::add(std::string_view name, bool value) {
  metrics.push_back({std::string(name), value ? 1.0 : 0.0, Metric::Form::flag});
  return *this;
}

MetricsLine& MetricsLine::add_text(std::string_view name, std::string text) {
  metrics.push_back({std::string(name), 0, Metric::Form::text, std::move(text)});
  return *this;
}

const Metric* MetricsLine::find(std::string_view name) const {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const Metric& metric) { return metric.name == name; });
  return found == metrics.end() ? nullptr : &*found;
}

double MetricsLine::value(std::string_view name) const {
  const Metric* const metric = find(name);
  if (metric == nullptr) fail(ErrorKind::internal, "this line of metrics has no value {}", name);
  return metric->value;
}

double MetricsLine::value_or(std::string_view name, double other) const {
  const Metric* const metric = find(name);
  return metric == nullptr ? other : metric->value;
}

std::string MetricsLine::text(std::string_view name) const {
  const Metric* const metric = find(name);
  return metric == nullptr ? "" : metric->text;
}

std::span<const SinkRow> sink_rows() {
  return kSinks;
}

std::vector<Field> sink_fields(MetricsConfig& config, std::span<const SinkRow> rows) {
  config.keys.clear();
  for (const SinkRow& row : rows) {
    if (row.keys == nullptr) continue;
    const std::vector<OwnKey> own = row.keys();
    config.keys.insert(config.keys.end(), own.begin(), own.end());
  }
  std::vector<Field> fields = fields_of("metrics", config);
  fields.front().help += formatted(" ({})", joined(rows, "; ", [](const SinkRow& row) {
                                     return formatted("{}: {}", row.name, row.help);
                                   }));
  return fields;
}

bool is_sink_on(const MetricsConfig& config, std::string_view name, std::span<const SinkRow> rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const SinkRow& row) { return row.name == name && is_on(row, config); });
}

void check_sinks(const MetricsConfig& config, Problems& problems, std::span<const SinkRow> rows) {
  std::vector<std::string> allowed;
  for (const SinkRow& row : rows) allowed.emplace_back(row.name);
  allowed.emplace_back(kNoSink);
  const std::vector<std::string> names = names_in(config.sinks);
  for (const std::string& name : names)
    problems.one_of("metrics.sinks", name.empty() ? "''" : name, allowed);
  if (names.size() > 1 && std::find(names.begin(), names.end(), kNoSink) != names.end())
    problems.add("metrics.sinks", config.sinks, "must be either none or names of sinks");
  for (const SinkRow& row : rows) {
    if (row.check != nullptr) row.check(config.keys, problems);
  }
}

std::vector<std::unique_ptr<MetricsSink>> make_sinks(const MetricsConfig& config, SinkSetup setup,
                                                     std::span<const SinkRow> rows) {
  setup.keys = config.keys;
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  for (const SinkRow& row : rows) {
    if (!is_on(row, config)) continue;
    sinks.push_back(row.failure == SinkFailure::ends_attempt
                        ? row.make(setup)
                        : std::make_unique<OptionalSink>(row, setup));
  }
  return sinks;
}

}  // namespace trireme::train
