#include "train/report/tensorboard_sink.hpp"

#include <unistd.h>

#include <array>
#include <bit>
#include <numeric>
#include <span>

#include "comm/session.hpp"
#include "core/exponential_buckets.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/hash/crc32c.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"
#include "train/report/protobuf.hpp"

namespace trireme::train {
namespace {

// Field numbers of tensorflow/core/util/event.proto, summary.proto and tensor.proto.
constexpr std::uint32_t kWallTime = 1;
constexpr std::uint32_t kStep = 2;
constexpr std::uint32_t kFileVersion = 3;
constexpr std::uint32_t kSummary = 5;
constexpr std::uint32_t kSessionLog = 7;
constexpr std::uint32_t kTag = 1;
constexpr std::uint32_t kSimpleValue = 2;
constexpr std::uint32_t kHisto = 5;
constexpr std::uint32_t kTensor = 8;
constexpr std::uint32_t kMetadata = 9;
constexpr std::uint64_t kSessionStart = 1;
constexpr std::uint64_t kTypeString = 7;

std::string bytes_of(auto value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xa282ead8U;
}

/// Returns an event as a record of a TFRecord file.
std::string record(const Protobuf& event) {
  const std::string size = bytes_of(static_cast<std::uint64_t>(event.bytes().size()));
  return size + bytes_of(masked_crc(size)) + event.bytes() + bytes_of(masked_crc(event.bytes()));
}

Protobuf event_at(std::int64_t step) {
  return Protobuf().real(kWallTime, unix_time_s()).number(kStep, static_cast<std::uint64_t>(step));
}

Protobuf scalar(std::string_view name, double value) {
  return Protobuf().text(kTag, name).real32(kSimpleValue, static_cast<float>(value));
}

Protobuf metadata(std::string_view plugin, std::string_view content = {}) {
  return Protobuf().message(1, Protobuf().text(1, plugin).text(2, content));
}

std::string packed_doubles(const std::vector<double>& values) {
  std::string bytes;
  for (const double value : values) bytes += bytes_of(value);
  return bytes;
}

/// Returns a HistogramProto. The outer borders of the filled buckets replace the unknown smallest
/// and largest value. A bucket without elements comes first, because readers take the limit of the
/// previous bucket as the lower border of a bucket.
Protobuf histogram_value(const Metric& metric) {
  FilledBuckets filled = filled_buckets(metric.counts);
  filled.counts.insert(filled.counts.begin(), 0);
  const double num = std::accumulate(filled.counts.begin(), filled.counts.end(), 0.0);
  return Protobuf()
      .text(kTag, metric.name)
      .message(kHisto, Protobuf()
                           .real(1, filled.borders.front())
                           .real(2, filled.borders.back())
                           .real(3, num)
                           .text(6, packed_doubles(filled.borders))
                           .text(7, packed_doubles(filled.counts)));
}

/// Returns a text, which TensorBoard shows as Markdown.
Protobuf text_value(std::string_view name, std::string_view text) {
  const Protobuf shape = Protobuf().message(2, Protobuf().number(1, 1));
  return Protobuf()
      .text(kTag, name)
      .message(kTensor, Protobuf().number(1, kTypeString).message(2, shape).text(8, text))
      .message(kMetadata, metadata("text"));
}

/// Returns the configuration as a table in Markdown.
Protobuf config_text(const SinkSetup& setup) {
  std::string table = "| key | value |\n|---|---|\n";
  for (const auto& [key, value] : setup.config) table += cat("| ", key, " | ", value, " |\n");
  return text_value("config", table);
}

/// Returns `text` as a code block of Markdown, so that no character of it has a meaning.
std::string code_block(const std::string& text) {
  std::string block = "    ";
  for (const char c : text) {
    block += c;
    if (c == '\n') block += "    ";
  }
  return block;
}

Protobuf sample_text(const MetricsLine& line) {
  return text_value(cat("samples/", static_cast<std::int64_t>(line.value("sample"))),
                    cat("Prompt:\n\n", code_block(line.text("prompt")), "\n\nText:\n\n",
                        code_block(line.text("text"))));
}

/// Returns the hyperparameters of the run. Source: tensorboard/plugins/hparams/plugin_data.proto.
Protobuf hyperparameters(const SinkSetup& setup) {
  Protobuf start;
  for (const auto& [key, text] : setup.config) {
    const auto number = parse_number(text);
    const Protobuf value = number ? Protobuf().real(2, *number) : Protobuf().text(3, text);
    start.message(1, Protobuf().text(1, key).message(2, value));
  }
  start.text(4, setup.run_id).real(5, unix_time_s());
  return Protobuf()
      .text(kTag, "_hparams_/session_start_info")
      .message(kMetadata, metadata("hparams", Protobuf().number(1, 0).message(3, start).bytes()));
}

}  // namespace

TensorboardSink::TensorboardSink(const SinkSetup& setup) : step_(setup.first_step) {
  const std::filesystem::path folder = setup.folder.root / "tensorboard";
  make_directories(folder);
  file_ = folder / formatted("events.out.tfevents.{}.{}.{}.{}",
                             static_cast<std::int64_t>(unix_time_s()), comm::this_hostname(),
                             ::getpid(), setup.attempt);
  std::string records =
      record(Protobuf().real(kWallTime, unix_time_s()).text(kFileVersion, "brain.Event:2"));
  if (setup.attempt > 0 || setup.first_step > 0) {
    const std::string start = record(
        event_at(setup.first_step + 1).message(kSessionLog, Protobuf().number(1, kSessionStart)));
    records += start + start;  // TensorBoard ignores the first START event that it reads
  }
  for (const Protobuf& value : {hyperparameters(setup), config_text(setup)})
    records += record(event_at(setup.first_step).message(kSummary, Protobuf().message(1, value)));
  append(records);
}

void TensorboardSink::write(const MetricsLine& line) {
  switch (line.kind) {
    case MetricsLine::Kind::step:
      step_ = static_cast<std::int64_t>(line.value("step"));
      break;
    case MetricsLine::Kind::validation:
      step_ = static_cast<std::int64_t>(line.value("eval_step"));
      break;
    case MetricsLine::Kind::sample:
      append(record(event_at(static_cast<std::int64_t>(line.value("sample_step")))
                        .message(kSummary, Protobuf().message(1, sample_text(line)))));
      return;
    default:
      return;
  }
  Protobuf summary;
  for (const Metric& metric : line.metrics) {
    if (metric.form == Metric::Form::text || metric.name == "step" || metric.name == "time" ||
        metric.name == "eval_step")
      continue;
    summary.message(1, metric.form == Metric::Form::histogram ? histogram_value(metric)
                                                              : scalar(metric.name, metric.value));
  }
  append(record(event_at(step_).message(kSummary, summary)));
}

void TensorboardSink::append(const std::string& records) {
  append_to_file(file_, records);
}

}  // namespace trireme::train
