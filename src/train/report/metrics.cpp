#include "train/report/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/log.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

constexpr std::size_t kFields = sizeof(StepMeasures) / sizeof(double);

static_assert(sizeof(StepMeasures) == kFields * sizeof(double));

/// What is reported as a mean over ranks and steps.
constexpr std::array kParts{&StepMeasures::data_wait_s,    &StepMeasures::save_s,
                            &StepMeasures::validation_s,   &StepMeasures::peer_wait_s,
                            &StepMeasures::comm_s,         &StepMeasures::comm_exposed_s,
                            &StepMeasures::first_bucket_s, &StepMeasures::last_grad_s};

using Packed = std::array<double, kFields>;

StepMeasures unpack(const double* one) {
  Packed packed{};
  std::copy_n(one, kFields, packed.begin());
  return std::bit_cast<StepMeasures>(packed);
}

/// One JSON object in a line, numbers in the shortest form that reads back to the same bits
/// (nlohmann's are sometimes a digit longer). JSON has no NaN or infinity: null.
class JsonLine {
 public:
  JsonLine& add(const char* key, double value) {
    return add_text(key, std::isfinite(value) ? number_text(value) : "null");
  }

  JsonLine& add(const char* key, std::int64_t value) { return add_text(key, cat(value)); }

  JsonLine& add(const char* key, bool value) { return add_text(key, value ? "true" : "false"); }

  [[nodiscard]] std::string text() const { return text_ + "}"; }

 private:
  JsonLine& add_text(const char* key, const std::string& value) {
    text_ += formatted("{}\"{}\":{}", text_.empty() ? "{" : ",", key, value);
    return *this;
  }

  std::string text_;
};

/// Cuts off a last line without its end (a full disk, a lost node): it would run into the next one.
void cut_torn_line(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return;
  const Fd fd = open_read(file);
  const std::uint64_t size = std::filesystem::file_size(file);
  std::uint64_t whole = size;  // up to and with the last end of a line
  std::array<char, 4096> piece{};
  while (whole > 0) {
    const std::uint64_t begin = whole - std::min<std::uint64_t>(whole, piece.size());
    const std::span<char> bytes(piece.data(), static_cast<std::size_t>(whole - begin));
    read_all(fd.get(), std::as_writable_bytes(bytes), begin, file);
    const std::size_t end = std::string_view(bytes.data(), bytes.size()).rfind('\n') + 1;
    whole = begin + end;  // npos + 1 is 0
    if (end != 0) break;
  }
  std::error_code code;
  if (whole != size) std::filesystem::resize_file(file, whole, code);
  if (code) fail_to_write("shorten", file, code.value());
}

constexpr std::int64_t kQuietSteps = 20;  // between two warnings of spikes

/// Of the day; to the millisecond, which is what a reader can use.
double unix_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milli = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return static_cast<double>(milli) / 1000;
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // null in JSON

std::string to_json(const MetricsLine& line) {
  const auto count = [](double value) { return static_cast<std::int64_t>(value); };
  return JsonLine()
      .add("step", line.facts.step)
      .add("time", line.time)
      .add("tokens", line.facts.tokens)
      .add("loss", line.loss)
      .add("grad_norm", line.facts.grad_norm)
      .add("lr", line.facts.lr)
      .add("step_time_s", line.step_time_s)
      .add("tokens_per_s", line.tokens_per_s)
      .add("data_wait_s", line.mean.data_wait_s)
      .add("save_s", line.mean.save_s)
      .add("validation_s", line.mean.validation_s)
      .add("peer_wait_s", line.mean.peer_wait_s)
      .add("comm_s", line.mean.comm_s)
      .add("comm_exposed_s", line.mean.comm_exposed_s)
      .add("first_bucket_s", line.mean.first_bucket_s)
      .add("last_grad_s", line.mean.last_grad_s)
      .add("mem_peak_bytes", count(line.mean.mem_peak_bytes))
      .add("mfu", line.mfu)
      .add("num_targets", count(line.mean.num_targets))
      .add("slowest_rank", std::int64_t{line.slowest_rank})
      .add("loss_scale", line.facts.loss_scale)
      .add("skipped", line.facts.skipped)
      .add("loss_z", line.loss_z.value_or(kNone))
      .add("grad_norm_z", line.grad_norm_z.value_or(kNone))
      .text();
}

}  // namespace

Metrics::Metrics(Communicator& world, std::filesystem::path file, double flops_per_token,
                 double peak_flops_total)
    : world_(world),
      file_(std::move(file)),
      flops_per_token_(flops_per_token),
      peak_flops_(peak_flops_total),
      mine_(kFields),
      all_(kFields * static_cast<std::size_t>(world.size())) {
  if (world_.rank() == 0) cut_torn_line(file_);
}

std::optional<MetricsLine> Metrics::report(const StepFacts& facts, const StepMeasures& measures) {
  std::optional<MetricsLine> line = flush();
  pending_facts_ = facts;
  pending_time_ = unix_time_s();
  const auto packed = std::bit_cast<Packed>(measures);
  mine_.assign(packed.begin(), packed.end());
  pending_ = world_.all_gather(mine_.data(), all_.data(), kFields, DType::f64, {}, "metrics");
  return line;
}

std::optional<MetricsLine> Metrics::flush() {
  if (!pending_) return std::nullopt;
  pending_->wait();
  pending_.reset();
  MetricsLine line;
  StepMeasures& mean = line.mean;
  double least_wait_s = std::numeric_limits<double>::infinity();
  for (int rank = 0; rank < world_.size(); ++rank) {
    const StepMeasures one = unpack(all_.data() + static_cast<std::size_t>(rank) * kFields);
    mean.loss_sum += one.loss_sum;
    mean.num_targets += one.num_targets;
    mean.ended_s = std::max(mean.ended_s, one.ended_s);
    for (const auto part : kParts) mean.*part += one.*part;
    mean.mem_peak_bytes = std::max(mean.mem_peak_bytes, one.mem_peak_bytes);
    if (one.peer_wait_s < least_wait_s) {
      least_wait_s = one.peer_wait_s;
      line.slowest_rank = rank;
    }
  }
  line.facts = pending_facts_;
  line.time = pending_time_;
  const auto steps = static_cast<double>(line.facts.num_steps);
  for (const auto part : kParts) mean.*part /= steps * world_.size();
  line.step_time_s = (mean.ended_s - ended_s_) / steps;
  ended_s_ = mean.ended_s;
  line.loss = mean.loss_sum / mean.num_targets;
  line.tokens_per_s = static_cast<double>(line.facts.step_tokens) / line.step_time_s;
  line.mfu = line.tokens_per_s * flops_per_token_ / peak_flops_;
  score(line);
  append(to_json(line));
  return line;
}

void Metrics::score(MetricsLine& line) {
  line.loss_z = loss_spikes_.score(line.loss);
  line.grad_norm_z = grad_norm_spikes_.score(line.facts.grad_norm);
  const bool spike = line.loss_z.value_or(0) > SpikeDetector::kWarn;
  const bool quiet = warned_step_ > 0 && line.facts.step - warned_step_ < kQuietSteps;
  if (!spike || quiet || world_.rank() != 0) return;
  warned_step_ = line.facts.step;
  log::warn(formatted(
      "step {}: the loss jumps to {}, {} robust standard deviations above the last {}; gradient norm {}",
      line.facts.step, line.loss, std::lround(*line.loss_z), SpikeDetector::kWindow,
      line.facts.grad_norm));
}

void Metrics::put_spikes(std::map<std::string, std::string>& values) const {
  values["spikes.loss"] = loss_spikes_.text();
  values["spikes.grad_norm"] = grad_norm_spikes_.text();
}

void Metrics::restore_spikes(const std::map<std::string, std::string>& values) {
  const auto text = [&](const char* key) {
    const auto found = values.find(key);
    return found == values.end() ? "" : found->second;
  };
  loss_spikes_.restore(text("spikes.loss"));
  grad_norm_spikes_.restore(text("spikes.grad_norm"));
}

void Metrics::write_resumed(std::int64_t step) {
  append(JsonLine().add("resumed_from", step).text());
}

void Metrics::write_validation(std::int64_t step, double loss, double num_targets) {
  append(JsonLine()
             .add("eval_step", step)
             .add("valid_loss", loss)
             .add("valid_targets", static_cast<std::int64_t>(num_targets))
             .text());
}

void Metrics::write_closing(const ClosingLine& closing) {
  append(JsonLine()
             .add("end_step", closing.step)
             .add("time", unix_time_s())
             .add("done", closing.done)
             .add("steps", closing.steps)
             .add("tokens", closing.tokens)
             .add("time_s", closing.time_s)
             .add("tokens_per_s", static_cast<double>(closing.tokens) / closing.time_s)
             .text());
}

void Metrics::append(const std::string& line) {
  if (world_.rank() != 0) return;
  const Fd fd(::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  const std::string text = line + "\n";
  // One write per line: a reader never sees half of one, whatever happens to this process.
  if (fd) errno = ENOSPC;  // what a short write means
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail_to_write("append to", file_, errno);
}

}  // namespace trireme
