#include "train/report/jsonl_sink.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/files/refusal.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

/// Removes an incomplete last line (full disk, lost node), which would join with the next line.
void remove_incomplete_line(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return;
  const Fd fd = open_read(file);
  const std::uint64_t size = std::filesystem::file_size(file);
  std::uint64_t whole = size;  // size up to the end of the last complete line
  std::array<char, 4096> buffer{};
  while (whole > 0) {
    const std::uint64_t begin = whole - std::min<std::uint64_t>(whole, buffer.size());
    const std::span<char> bytes(buffer.data(), static_cast<std::size_t>(whole - begin));
    read_all(fd.get(), std::as_writable_bytes(bytes), begin, file);
    const std::size_t end = std::string_view(bytes.data(), bytes.size()).rfind('\n') + 1;
    whole = begin + end;  // npos + 1 is 0
    if (end != 0) break;
  }
  std::error_code code;
  if (whole != size) std::filesystem::resize_file(file, whole, code);
  if (code) fail_to_write("shorten", file, code.value());
}

std::string json_value(const Metric& metric) {
  if (metric.form != Metric::Form::text && !std::isfinite(metric.value)) return "null";
  switch (metric.form) {
    case Metric::Form::flag:
      return metric.value != 0 ? "true" : "false";
    case Metric::Form::whole:
      return cat(static_cast<std::int64_t>(metric.value));
    case Metric::Form::text:
      return json_text(metric.text);  // a prompt may have bytes that are not UTF-8
    case Metric::Form::histogram:
    case Metric::Form::real:
      break;
  }
  return number_text(metric.value);  // nlohmann's text is sometimes one digit longer
}

std::string json_line(const MetricsLine& line, std::int64_t attempt) {
  std::string text;
  for (const Metric& metric : line.metrics) {
    if (metric.form == Metric::Form::histogram) continue;
    text += formatted("{}\"{}\":{}", text.empty() ? "{" : ",", metric.name, json_value(metric));
  }
  return text + cat(text.empty() ? "{" : ",", "\"attempt\":", attempt, "}\n");
}

}  // namespace

JsonlSink::JsonlSink(const SinkSetup& setup)
    : file_(setup.folder.metrics()), samples_(setup.folder.samples()), attempt_(setup.attempt) {
  remove_incomplete_line(file_);
  remove_incomplete_line(samples_);
}

void JsonlSink::write(const MetricsLine& line) {
  if (line.kind == MetricsLine::Kind::commit || line.kind == MetricsLine::Kind::rank) return;
  append_to_file(line.kind == MetricsLine::Kind::sample ? samples_ : file_,
                 json_line(line, attempt_));
}

RanksSink::RanksSink(const SinkSetup& setup)
    : file_(setup.folder.ranks()), attempt_(setup.attempt) {
  remove_incomplete_line(file_);
}

void RanksSink::write(const MetricsLine& line) {
  if (line.kind == MetricsLine::Kind::rank) append_to_file(file_, json_line(line, attempt_));
}

}  // namespace trireme::train
