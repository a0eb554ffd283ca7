#include "train/report/progress_line.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"
#include "job/attempt.hpp"

namespace trireme::train {
namespace {

std::string format(const char* pattern, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

/// Returns the local time of day, with the date if it is more than a day away.
std::string clock_text(double time, double now_s) {
  constexpr double kDay_s = 86400;
  const auto seconds = static_cast<std::time_t>(time);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), time - now_s < kDay_s ? "%H:%M" : "%Y-%m-%d %H:%M",
                &parts);
  return text.data();
}

/// Returns the figure that tells more than the loss about a task, with its name; "" if there is none.
std::string task_figure(const MetricsLine& line) {
  for (const std::string_view name : {"reward", "accuracy"}) {
    const double value = line.value_or(name, NAN);
    if (!std::isnan(value)) return cat("  ", name, " ", format("%.3f", value));
  }
  return "";
}

}  // namespace

std::string eta_text(double left_s, double now_s, std::optional<double> job_start,
                     std::optional<double> job_end) {
  const std::string eta = "ETA " + format_duration(left_s);
  if (!job_end) return eta;
  const std::string ends = "job ends " + clock_text(*job_end, now_s);
  const double late_s = now_s + left_s - *job_end;
  if (late_s <= 0)
    return formatted("{} (done at {}, {})", eta, clock_text(now_s + left_s, now_s), ends);
  if (!job_start || *job_start >= *job_end)
    return formatted("{} ({} before the run is done)", eta, ends);
  const auto jobs = static_cast<std::int64_t>(std::ceil(late_s / (*job_end - *job_start)));
  return formatted("{} ({}, needs {} more {})", eta, ends, jobs, jobs == 1 ? "job" : "jobs");
}

ProgressLine::ProgressLine(const SinkSetup& setup, double log_period_s)
    : first_step_(setup.first_step),
      last_step_(setup.first_step),
      total_steps_(setup.total_steps),
      log_every_(setup.log_every),
      output_(progress_mode(), log_period_s),
      job_start_(job::job_start_from_environment()),
      job_end_(job::job_end_from_environment()) {}

double ProgressLine::left_s(std::int64_t step, double step_time_s) {
  // The first step does not count because of warm-up. The window is long enough to contain saves.
  const std::int64_t counted = std::clamp<std::int64_t>(step - first_step_ - 1, 1, kEtaSteps);
  const std::int64_t new_ones = std::clamp<std::int64_t>(step - last_step_, 1, counted);
  const double share = static_cast<double>(new_ones) / static_cast<double>(counted);
  smooth_step_s_ += share * (step_time_s - smooth_step_s_);
  last_step_ = step;
  return static_cast<double>(total_steps_ - step) * smooth_step_s_;
}

void ProgressLine::write(const MetricsLine& line) {
  if (line.kind != MetricsLine::Kind::step) return;
  const auto step = static_cast<std::int64_t>(line.value("step"));
  const double step_time_s = line.value("step_time_s");
  const double remaining_s = left_s(step, step_time_s);
  const bool is_last = step == total_steps_;
  if (log_every_ <= 0 || output_.mode() == ProgressOutput::Mode::none) return;
  const bool is_wanted = output_.mode() != ProgressOutput::Mode::log || step % log_every_ == 0;
  if (step != first_step_ + 1 && !is_last && !(is_wanted && output_.is_due())) return;
  const double comm_s = line.value_or("comm_exposed_s", -1);  // a run with NCCL does not know it
  const std::string text =
      formatted("step {}/{}  loss {}{}  lr {}  gnorm {}  {} tok/s  MFU {}  mem {}  data {}{}{}  {}",
                step, total_steps_, format("%.4f", line.value("loss")), task_figure(line),
                format("%.2e", line.value("lr")), format("%.3f", line.value("grad_norm")),
                format_count(line.value("tokens_per_s")), format("%.1f%%", 100 * line.value("mfu")),
                format("%.2f GiB", line.value("mem_peak_bytes") / (1024.0 * 1024 * 1024)),
                format("%.1f%%", 100 * line.value("data_wait_s") / step_time_s),
                comm_s < 0 ? "" : cat("  comm ", format("%.1f%%", 100 * comm_s / step_time_s)),
                line.value("skipped") != 0 ? "  skipped (not finite)" : "",
                eta_text(remaining_s, unix_time_s(), job_start_, job_end_));
  Json json{{"progress", "train"},        {"done", step},
            {"total", total_steps_},      {"unit", "steps"},
            {"rate", 1 / step_time_s},    {"eta_s", remaining_s},
            {"loss", line.value("loss")}, {"tokens_per_s", line.value("tokens_per_s")}};
  if (job_end_) json["job_end"] = *job_end_;
  output_.show(text, json_text(json));
  if (is_last) pause();
}

void ProgressLine::pause() {
  output_.end_line(/*keep=*/true);
}

}  // namespace trireme::train
