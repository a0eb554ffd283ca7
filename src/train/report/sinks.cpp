#include "train/report/sinks.hpp"

#include <array>

#include "core/error.hpp"
#include "train/report/jsonl_sink.hpp"
#include "train/report/progress_line.hpp"

namespace trireme {
namespace {

using MakeSink = std::unique_ptr<MetricsSink> (*)(const SinkSetup&);

template <class Sink>
std::unique_ptr<MetricsSink> make(const SinkSetup& setup) {
  return std::make_unique<Sink>(setup);
}

/// One more sink: its file and a row here.
constexpr std::array kSinks{
    make<JsonlSink>,
    make<ProgressLine>,
};

}  // namespace

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

double MetricsLine::value(std::string_view name) const {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  fail(ErrorKind::internal, "this line of metrics has no {}", name);
}

std::vector<std::unique_ptr<MetricsSink>> make_sinks(const SinkSetup& setup) {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  for (const MakeSink make_sink : kSinks) sinks.push_back(make_sink(setup));
  return sinks;
}

}  // namespace trireme
