#include "train/report/progress_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/background_log.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

std::string format(const char* pattern, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace

std::string format_count(double value) {
  constexpr std::array<const char*, 5> kUnits{"%.0f", "%.1fk", "%.2fM", "%.2fG", "%.2fT"};
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return format(kUnits[unit], value);
}

ProgressLine::ProgressLine(const SinkSetup& setup)
    : first_step_(setup.first_step),
      last_step_(setup.first_step),
      total_steps_(setup.total_steps),
      log_every_(setup.log_every),
      terminal_(is_terminal()) {}

std::string ProgressLine::eta(std::int64_t step, double step_time_s) {
  // The first step does not count because of warm-up. The window is long enough to contain saves.
  const std::int64_t counted = std::clamp<std::int64_t>(step - first_step_ - 1, 1, kEtaSteps);
  const std::int64_t new_ones = std::clamp<std::int64_t>(step - last_step_, 1, counted);
  const double share = static_cast<double>(new_ones) / static_cast<double>(counted);
  smooth_step_s_ += share * (step_time_s - smooth_step_s_);
  last_step_ = step;
  return format_duration(static_cast<double>(total_steps_ - step) * smooth_step_s_);
}

void ProgressLine::write(const MetricsLine& line) {
  if (line.kind != MetricsLine::Kind::step) return;
  const auto step = static_cast<std::int64_t>(line.value("step"));
  const double step_time_s = line.value("step_time_s");
  const std::string remaining = eta(step, step_time_s);
  const bool due =
      step == first_step_ + 1 || step == total_steps_ || (log_every_ > 0 && step % log_every_ == 0);
  if (log_every_ <= 0 || (!due && !terminal_)) return;
  const std::string text = formatted(
      "step {}/{}  loss {}  lr {}  gnorm {}  {} tok/s  MFU {}  mem {}  data {}  comm {}{}  ETA {}",
      step, total_steps_, format("%.4f", line.value("loss")), format("%.2e", line.value("lr")),
      format("%.3f", line.value("grad_norm")), format_count(line.value("tokens_per_s")),
      format("%.1f%%", 100 * line.value("mfu")),
      format("%.2f GiB", line.value("mem_peak_bytes") / (1024.0 * 1024 * 1024)),
      format("%.1f%%", 100 * line.value("data_wait_s") / step_time_s),
      format("%.1f%%", 100 * line.value("comm_exposed_s") / step_time_s),
      line.value("skipped") != 0 ? "  skipped (overflow)" : "", remaining);
  if (terminal_) {
    log::redraw(text);
    open_ = true;
    if (step == total_steps_) pause();
  } else {
    log::info(text);
  }
}

void ProgressLine::pause() {
  if (open_) log::end_redrawn();
  open_ = false;
}

}  // namespace trireme::train
