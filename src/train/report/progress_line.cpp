#include "train/report/progress_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"

namespace trireme {
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

ProgressLine::ProgressLine(std::int64_t first_step, std::int64_t total_steps,
                           std::int64_t log_every, bool active)
    : first_step_(first_step),
      last_step_(first_step),
      total_steps_(total_steps),
      log_every_(log_every),
      active_(active && log_every > 0),
      terminal_(is_terminal()) {}

std::string ProgressLine::eta(std::int64_t step, double step_time_s) {
  // The first step pays for warm-up of caches: it does not count. Long enough to hold saves.
  const std::int64_t counted = std::clamp<std::int64_t>(step - first_step_ - 1, 1, kEtaSteps);
  const std::int64_t new_ones = std::clamp<std::int64_t>(step - last_step_, 1, counted);
  const double share = static_cast<double>(new_ones) / static_cast<double>(counted);
  smooth_step_s_ += share * (step_time_s - smooth_step_s_);
  last_step_ = step;
  return format_duration(static_cast<double>(total_steps_ - step) * smooth_step_s_);
}

void ProgressLine::show(const MetricsLine& line) {
  const std::int64_t step = line.facts.step;
  const std::string remaining = eta(step, line.step_time_s);
  const bool due =
      step == first_step_ + 1 || step == total_steps_ || (log_every_ > 0 && step % log_every_ == 0);
  if (!active_ || (!due && !terminal_)) return;
  const std::string text = formatted(
      "step {}/{}  loss {}  lr {}  gnorm {}  {} tok/s  MFU {}  mem {}  data {}  comm {}{}  ETA {}",
      step, total_steps_, format("%.4f", line.loss), format("%.2e", line.facts.lr),
      format("%.3f", line.facts.grad_norm), format_count(line.tokens_per_s),
      format("%.1f%%", 100 * line.mfu),
      format("%.2f GiB", line.mean.mem_peak_bytes / (1024.0 * 1024 * 1024)),
      format("%.1f%%", 100 * line.mean.data_wait_s / line.step_time_s),
      format("%.1f%%", 100 * line.mean.comm_exposed_s / line.step_time_s),
      line.facts.skipped ? "  skipped (overflow)" : "", remaining);
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
    open_ = true;
    if (step == total_steps_) close();
  } else {
    log::info(text);
  }
}

void ProgressLine::close() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

}  // namespace trireme
