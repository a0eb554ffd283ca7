#include "train/report/wandb_sink.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "comm/session.hpp"
#include "core/exponential_buckets.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/files/refusal.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"

namespace trireme::train {
namespace {

constexpr std::string_view kFileHeader{":W&B\xe1\xbe\x00", 7};
constexpr std::size_t kBlock = 32768;
constexpr std::size_t kPartHeader = 7;

enum RecordPart : std::uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

// Field numbers of wandb/proto/wandb_internal.proto.
constexpr std::uint32_t kRecordNumber = 1;
constexpr std::uint32_t kRecordHistory = 2;
constexpr std::uint32_t kRecordSummary = 3;
constexpr std::uint32_t kRecordRun = 17;
constexpr std::uint32_t kRecordExit = 18;
constexpr std::uint32_t kRecordFinal = 20;
constexpr std::uint32_t kRecordVersion = 21;
constexpr std::uint32_t kItemJson = 16;
constexpr std::uint32_t kHistoryStep = 2;

std::uint32_t checksum(std::uint8_t part, std::string_view bytes) {
  const auto* const data = reinterpret_cast<const Bytef*>(bytes.data());
  const uLong type = ::crc32(0, &part, 1);
  return static_cast<std::uint32_t>(::crc32(type, data, static_cast<uInt>(bytes.size())));
}

void put_part(std::string& into, RecordPart part, std::string_view bytes) {
  const std::uint32_t sum = checksum(part, bytes);
  for (int i = 0; i < 4; ++i) into += static_cast<char>(sum >> (8 * i));
  into += static_cast<char>(bytes.size());
  into += static_cast<char>(bytes.size() >> 8);
  into += static_cast<char>(part);
  into += bytes;
}

/// One part of a record at the front of `bytes`; nullopt if it is incomplete or damaged.
struct Part {
  std::uint8_t type;
  std::string_view bytes;
};

std::optional<Part> part_at(std::string_view bytes) {
  if (bytes.size() < kPartHeader) return std::nullopt;
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i]));
  };
  const std::uint32_t sum = byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
  const std::size_t size = byte(4) | byte(5) << 8;
  const auto type = static_cast<std::uint8_t>(byte(6));
  if (bytes.size() < kPartHeader + size) return std::nullopt;
  const Part part{type, bytes.substr(kPartHeader, size)};
  if (checksum(type, part.bytes) != sum) return std::nullopt;
  return part;
}

/// Returns the value of a varint and removes it from `bytes`.
std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; !bytes.empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

/// Returns the content of a field of a message that has only varints, strings and messages; nullopt
/// if the field is absent.
std::optional<std::string_view> field_of(std::string_view message, std::uint32_t wanted) {
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    std::string_view value = message;
    if ((key & 7) == 0) {
      (void)take_varint(message);
      value.remove_suffix(message.size());
    } else {
      const std::size_t size = std::min<std::size_t>(take_varint(message), message.size());
      value = message.substr(0, size);
      message.remove_prefix(size);
    }
    if (key >> 3 == wanted) return value;
  }
  return std::nullopt;
}

/// Returns true if a record of an earlier attempt stays in a run that continues after `step`.
bool is_kept(std::string_view record, std::int64_t step) {
  for (const std::uint32_t end : {kRecordSummary, kRecordExit, kRecordFinal}) {
    if (field_of(record, end)) return false;
  }
  const auto history = field_of(record, kRecordHistory);
  if (!history) return true;
  const auto number = field_of(field_of(*history, kHistoryStep).value_or(""), 1);
  std::string_view varint = number.value_or("");
  return static_cast<std::int64_t>(take_varint(varint)) <= step;
}

Protobuf item(std::string_view key, const Json& value) {
  return Protobuf().text(1, key).text(kItemJson, value.dump());
}

/// Returns a histogram as wandb.Histogram stores it.
Protobuf histogram_item(std::string_view key, const std::vector<double>& counts) {
  const FilledBuckets filled = filled_buckets(counts);
  return item(key, {{"_type", "histogram"}, {"values", filled.counts}, {"bins", filled.borders}});
}

/// Returns the file of the run, from an earlier attempt if there is one.
std::filesystem::path file_of(const SinkSetup& setup, const std::string& id) {
  const std::filesystem::path folder = setup.folder.root / "wandb";
  make_directories(folder);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("offline-run-") && name.ends_with("-" + id))
      return entry.path() / cat("run-", id, ".wandb");
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> time{};
  (void)std::strftime(time.data(), time.size(), "%Y%m%d_%H%M%S", &local);
  const std::filesystem::path own = folder / cat("offline-run-", time.data(), "-", id);
  make_directories(own);
  return own / cat("run-", id, ".wandb");
}

std::string id_of(const SinkSetup& setup) {
  return setup.run_id.empty() ? "trireme" : setup.run_id.substr(0, 8);
}

}  // namespace

WandbLog::WandbLog(std::filesystem::path file,
                   const std::function<bool(std::string_view record)>& keep)
    : file_(std::move(file)) {
  const std::string text = std::filesystem::exists(file_) ? read_file(file_) : "";
  if (!text.starts_with(kFileHeader)) {
    std::filesystem::remove(file_);
    append_to_file(file_, std::string(kFileHeader));
    size_ = kFileHeader.size();
    return;
  }
  size_ = kFileHeader.size();
  std::string record;
  for (std::size_t at = size_; at < text.size();) {
    const std::size_t left = kBlock - at % kBlock;
    if (left < kPartHeader) {
      at += left;
      continue;
    }
    const auto part = part_at(std::string_view(text).substr(at));
    if (!part) break;
    at += kPartHeader + part->bytes.size();
    if (part->type == kFull || part->type == kFirst) record.clear();
    record += part->bytes;
    if (part->type != kFull && part->type != kLast) continue;
    if (!keep(record)) break;
    size_ = at;
    ++num_records_;
  }
  std::error_code code;
  std::filesystem::resize_file(file_, size_, code);
  if (code) fail_to_write("shorten", file_, code.value());
}

void WandbLog::append(const std::string& record) {
  std::string bytes;
  std::string_view rest = record;
  bool begun = false;
  do {
    const std::size_t left = kBlock - (size_ + bytes.size()) % kBlock;
    if (left < kPartHeader && !begun) {
      bytes.append(left, '\0');
      continue;
    }
    const std::size_t size = std::min(rest.size(), left - kPartHeader);
    const bool ends = size == rest.size();
    const RecordPart part = begun ? (ends ? kLast : kMiddle) : (ends ? kFull : kFirst);
    put_part(bytes, part, rest.substr(0, size));
    rest.remove_prefix(size);
    begun = true;
  } while (!rest.empty());
  append_to_file(file_, bytes);
  size_ += bytes.size();
  ++num_records_;
}

WandbSink::WandbSink(const SinkSetup& setup) : began_s_(unix_time_s()) {
  log_.emplace(file_of(setup, id_of(setup)),
               [&](std::string_view record) { return is_kept(record, setup.first_step); });
  if (log_->num_records() == 0) begin(setup);
}

/// Writes the first records: the version of the format, and the run with its configuration.
void WandbSink::begin(const SinkSetup& setup) {
  append(kRecordVersion, Protobuf().message(1, Protobuf().text(1, "0.19.0").text(2, "0.13.0")));
  Protobuf config;
  for (const auto& [key, text] : setup.config) {
    const auto number = parse_number(text);
    config.message(1, item(key, number ? Json(*number) : Json(text)));
  }
  const auto seconds = static_cast<std::uint64_t>(began_s_);
  append(kRecordRun, Protobuf()
                         .text(1, id_of(setup))
                         .text(3, "trireme")
                         .message(4, config)
                         .text(7, setup.task)
                         .text(8, setup.run_name())
                         .text(13, comm::this_hostname())
                         .message(17, Protobuf().number(1, seconds)));
}

void WandbSink::write(const MetricsLine& line) {
  std::int64_t step = 0;
  switch (line.kind) {
    case MetricsLine::Kind::step:
      step = static_cast<std::int64_t>(line.value("step"));
      break;
    case MetricsLine::Kind::validation:
      step = static_cast<std::int64_t>(line.value("eval_step"));
      break;
    case MetricsLine::Kind::end: {
      append_row();
      Protobuf summary;
      for (const auto& [name, value] : newest_) summary.message(1, item(name, value));
      append(kRecordSummary, summary);
      const auto seconds = static_cast<std::uint64_t>(line.value("time_s"));
      append(kRecordExit, Protobuf().number(1, 0).number(2, seconds));
      append(kRecordFinal, {});
      return;
    }
    default:
      return;
  }
  if (row_ && row_->step != step) append_row();
  if (!row_) row_ = Row{step};
  for (const Metric& metric : line.metrics) {
    if (metric.form == Metric::Form::text || !std::isfinite(metric.value) ||
        metric.name == "step" || metric.name == "eval_step")
      continue;
    if (metric.form == Metric::Form::histogram) {
      row_->histograms[metric.name] = metric.counts;
      continue;
    }
    row_->numbers[metric.name == "time" ? "_timestamp" : metric.name] = metric.value;
  }
  if (line.kind == MetricsLine::Kind::step) append_row();
}

void WandbSink::append_row() {
  if (!row_) return;
  Protobuf history;
  history.message(kHistoryStep, Protobuf().number(1, static_cast<std::uint64_t>(row_->step)));
  history.message(1, item("_step", row_->step));
  history.message(1, item("_runtime", unix_time_s() - began_s_));
  for (const auto& [name, value] : row_->numbers) {
    history.message(1, item(name, value));
    newest_[name] = value;
  }
  for (const auto& [name, counts] : row_->histograms)
    history.message(1, histogram_item(name, counts));
  append(kRecordHistory, history);
  row_.reset();
}

void WandbSink::append(std::uint32_t kind, const Protobuf& message) {
  const auto number = static_cast<std::uint64_t>(log_->num_records() + 1);
  log_->append(Protobuf().number(kRecordNumber, number).message(kind, message).bytes());
}

}  // namespace trireme::train
