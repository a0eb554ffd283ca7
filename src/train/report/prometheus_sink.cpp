#include "train/report/prometheus_sink.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "comm/session.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "http/loopback.hpp"

namespace trireme::train {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// A metric of a step with a name and a help text of its own.
struct Known {
  const char* metric;
  const char* name;
  const char* type;
  const char* help;
};

constexpr std::array kKnown{
    Known{"step", "step", "gauge", "The last completed step."},
    Known{"loss", "loss", "gauge", "Training loss of the last step."},
    Known{"tokens", "tokens_total", "counter", "Positions that the run has trained on."},
    Known{"mfu", "mfu_ratio", "gauge", "Model FLOP/s divided by the peak of all ranks."}};

// Metrics that other series show.
constexpr std::array<std::string_view, 3> kElsewhere{"time", "step_time_s", "slowest_excess_s"};

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return number_text(value);
}

/// Returns the name of a measure in base units: "save_s" is "save_seconds".
std::string base_name(const std::string& metric) {
  const std::string_view unit = unit_of(metric);
  if (unit == "s") return metric.substr(0, metric.size() - 1) + "seconds";
  if (unit == "per_s") return metric.substr(0, metric.size() - 1) + "second";
  return metric;
}

/// Adds the lines of one metric family.
class Family {
 public:
  Family(std::string& into, std::string name, const char* type, std::string_view help)
      : into_(into), name_("trireme_" + std::move(name)) {
    into_ += formatted("# HELP {} {}\n# TYPE {} {}\n", name_, help, name_, type);
  }

  void add(const std::string& labels, double value, const char* suffix = "") {
    into_ += formatted("{}{}{{{}}} {}\n", name_, suffix, labels, number(value));
  }

 private:
  std::string& into_;
  std::string name_;
};

/// Returns the families of the norms of layers: trireme_layer_grad_norm{layer="layer_03"}.
std::string layer_text(const std::string& labels, const MetricsLine& layers) {
  std::string text;
  std::string before;
  std::optional<Family> family;
  for (const Metric& metric : layers.metrics) {
    const std::size_t slash = metric.name.find('/');
    const std::string kind = metric.name.substr(0, slash);
    if (kind != before)
      family.emplace(text, "layer_" + kind, "gauge", cat("The newest ", kind, " of each layer."));
    before = kind;
    family->add(cat(labels, ",layer=\"", escaped(metric.name.substr(slash + 1)), "\""),
                metric.value);
  }
  return text;
}

struct Address {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
};

/// Parses HOST:PORT, [HOST]:PORT, :PORT or PORT; nullopt for anything else.
std::optional<Address> parse_address(const std::string& text) {
  Address address;
  const std::size_t colon = text.rfind(':');
  const auto port = parse_integer(colon == std::string::npos ? text : text.substr(colon + 1));
  if (!port || *port < 0 || *port > 65535) return std::nullopt;
  address.port = static_cast<std::uint16_t>(*port);
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  if (!host.empty()) address.host = host;
  return address;
}

http::HttpHandlers handlers_of(std::function<std::string()> text, const bool& is_loopback) {
  const auto refused =
      [&is_loopback](const http::HttpHead& head) -> std::optional<http::HttpResponse> {
    if (is_loopback && head.host && !http::is_loopback_host(*head.host))
      return http::HttpResponse{
          .status = 403, .body = "Host is not allowed\n", .content_type = "text/plain"};
    if (head.path != "/metrics")
      return http::HttpResponse{
          .status = 404, .body = "Use /metrics\n", .content_type = "text/plain"};
    return std::nullopt;
  };
  return {refused,
          [text = std::move(text)](const http::HttpRequest&,
                                   const std::shared_ptr<http::HttpReply>& reply) {
            reply->answer({.body = text(), .content_type = "text/plain; version=0.0.4"});
          },
          [](int, std::string_view message) { return cat(message, "\n"); }};
}

/// Returns the beginning of the run's id, which tells runs of the same name apart.
std::string short_id(const SinkSetup& setup) {
  constexpr std::size_t kDigits = 8;
  return setup.run_id.substr(0, kDigits);
}

/// Returns the labels of all metrics. Without a job, the id of the run makes them unique.
std::string labels_of(const SinkSetup& setup) {
  std::string labels =
      formatted("run=\"{}\",job=\"{}\"", escaped(setup.run_name()), escaped(setup.job));
  if (setup.job.empty() && !setup.run_id.empty())
    labels += formatted(",run_id=\"{}\"", escaped(short_id(setup)));
  return labels;
}

}  // namespace

PrometheusText::PrometheusText(const SinkSetup& setup)
    : labels_(labels_of(setup)),
      attempt_(setup.attempt),
      total_steps_(setup.total_steps),
      last_step_(setup.first_step),
      valid_loss_(kUnknown),
      valid_bpb_(kUnknown),
      commit_time_(kUnknown) {
  newest_.add("step", setup.first_step);
  for (const char* phase :
       {"compute", "data", "communication", "checkpoint", "validation", "other"})
    phases_s_[phase] = 0;
}

void PrometheusText::add(const MetricsLine& line) {
  if (line.kind == MetricsLine::Kind::step) add_step(line);
  if (line.kind == MetricsLine::Kind::validation) {
    valid_loss_ = line.value("valid_loss");
    valid_bpb_ = line.value_or("valid_bpb", kUnknown);
  }
  if (line.kind == MetricsLine::Kind::commit) commit_time_ = line.value("time");
}

void PrometheusText::add_step(const MetricsLine& line) {
  const auto step = static_cast<std::int64_t>(line.value("step"));
  const auto steps = static_cast<double>(std::max<std::int64_t>(step - last_step_, 1));
  const double step_s = line.value("step_time_s");
  last_step_ = step;
  newest_ = line;
  MetricsLine layers;
  std::erase_if(newest_.metrics, [&](const Metric& metric) {
    if (metric.form == Metric::Form::histogram) return true;
    const bool is_of_layer = metric.name.find('/') != std::string::npos;
    if (is_of_layer) layers.metrics.push_back(metric);
    return is_of_layer;
  });
  if (!layers.metrics.empty()) newest_layers_ = std::move(layers);
  const auto bound = std::lower_bound(kBounds_s.begin(), kBounds_s.end(), step_s);
  counts_[static_cast<std::size_t>(bound - kBounds_s.begin())] += static_cast<std::uint64_t>(steps);
  step_seconds_ += steps * step_s;
  double named_s = 0;
  for (const auto& [phase, metric] :
       {std::pair{"compute", "compute_s"}, std::pair{"data", "data_wait_s"},
        std::pair{"communication", "comm_exposed_s"}, std::pair{"checkpoint", "save_s"},
        std::pair{"validation", "validation_s"}}) {
    const double seconds = line.value_or(metric, kUnknown);
    if (std::isnan(seconds)) continue;  // with NCCL, the host does not see the communication
    phases_s_[phase] += steps * seconds;
    named_s += seconds;
  }
  phases_s_["other"] += steps * std::max(0.0, step_s - named_s);
}

std::string PrometheusText::text() const {
  std::string text;
  for (const Known& known : kKnown) {
    Family(text, known.name, known.type, known.help)
        .add(labels_, newest_.value_or(known.metric, kUnknown));
  }
  Family(text, "steps", "gauge", "The number of steps of the whole run.")
      .add(labels_, static_cast<double>(total_steps_));
  Family(text, "valid_loss", "gauge", "The newest validation loss.").add(labels_, valid_loss_);
  if (!std::isnan(valid_bpb_))
    Family(text, "valid_bpb", "gauge", "Bits per byte of the newest validation.")
        .add(labels_, valid_bpb_);
  Family(text, "last_commit_time_seconds", "gauge",
         "Unix time at which this attempt has published its newest checkpoint.")
      .add(labels_, commit_time_);
  Family(text, "restarts_total", "counter", "Number of attempts before this one.")
      .add(labels_, static_cast<double>(attempt_));
  Family(text, "slowest_rank_excess_ratio", "gauge",
         "Time that the other ranks wait for the slowest rank, divided by the step time.")
      .add(labels_, newest_.value_or("slowest_excess_s", kUnknown) /
                        newest_.value_or("step_time_s", kUnknown));
  Family phases(text, "phase_seconds_total", "counter",
                "Time of this attempt by phase, as a mean over the ranks.");
  for (const auto& [phase, seconds] : phases_s_)
    phases.add(cat(labels_, ",phase=\"", phase, "\""), seconds);
  Family steps(text, "step_seconds", "histogram", "Duration of the steps of this attempt.");
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const double bound =
        i < kBounds_s.size() ? kBounds_s[i] : std::numeric_limits<double>::infinity();
    steps.add(cat(labels_, ",le=\"", number(bound), "\""), static_cast<double>(total), "_bucket");
  }
  steps.add(labels_, step_seconds_, "_sum");
  steps.add(labels_, static_cast<double>(total), "_count");
  for (const Metric& metric : newest_.metrics) {
    const bool is_known =
        std::any_of(kKnown.begin(), kKnown.end(),
                    [&](const Known& known) { return metric.name == known.metric; }) ||
        std::find(kElsewhere.begin(), kElsewhere.end(), metric.name) != kElsewhere.end();
    if (is_known || !metric.is_number()) continue;
    Family(text, base_name(metric.name), "gauge",
           cat("The value of ", metric.name, " in metrics.jsonl."))
        .add(labels_, metric.value);
  }
  text += layer_text(labels_, newest_layers_);
  return text;
}

void check(const PrometheusSink::Config& config, Problems& problems) {
  if (!config.listen.empty() && !parse_address(config.listen))
    problems.add("metrics.listen", config.listen,
                 "must be HOST:PORT or :PORT with a port from 0 to 65535");
}

PrometheusSink::PrometheusSink(const SinkSetup& setup)
    : target_file_(setup.folder.root / "prometheus_sd.json"), text_(setup) {
  const Address address = parse_address(setup.own<Config>().listen).value_or(Address{});
  server_ = std::make_unique<http::HttpServer>(http::HttpConfig{.host = address.host,
                                                                .port = address.port,
                                                                .options = "metrics.listen",
                                                                .num_threads = 1,
                                                                .max_body_bytes = 0,
                                                                .max_connections = 64},
                                               handlers_of(
                                                   [this] {
                                                     const std::lock_guard lock(mutex_);
                                                     return text_.text();
                                                   },
                                                   is_loopback_));
  is_loopback_ = server_->is_loopback();
  const bool is_any = address.host == "0.0.0.0" || address.host == "::";
  const std::string host = is_any ? comm::this_hostname() : address.host;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  const std::string target = cat(is_ipv6 ? "[" + host + "]" : host, ":", server_->port());
  const Json targets = Json::array(
      {Json{{"targets", Json::array({target})}, {"labels", Json{{"run", setup.run_name()}}}}});
  write_file_atomic(target_file_, targets.dump(2) + "\n");
  server_->start();
  log::info(formatted("Prometheus metrics: http://{}/metrics", target));
}

PrometheusSink::~PrometheusSink() {
  server_->stop();
  std::error_code ignored;
  std::filesystem::remove(target_file_, ignored);
}

void PrometheusSink::write(const MetricsLine& line) {
  const std::lock_guard lock(mutex_);
  text_.add(line);
}

PrometheusFileSink::PrometheusFileSink(const SinkSetup& setup)
    : file_(std::filesystem::path(setup.own<Config>().textfile) /
            formatted("trireme-{}.prom", setup.job.empty()
                                             ? formatted("{}-{}", setup.run_name(), short_id(setup))
                                             : setup.job)),
      text_(setup) {
  write_file_atomic(file_, text_.text());
}

PrometheusFileSink::~PrometheusFileSink() {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

void PrometheusFileSink::write(const MetricsLine& line) {
  constexpr double kBetween_s = 1;
  text_.add(line);
  if (since_write_.seconds() < kBetween_s) return;
  since_write_.restart();
  write_file_atomic(file_, text_.text());
}

}  // namespace trireme::train
