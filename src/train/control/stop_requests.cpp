#include "train/control/stop_requests.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/process/stop_signals.hpp"

namespace trireme {
namespace {

constexpr double kLeave_s = 10;           // metrics, status, MPI_Finalize
constexpr double kLeastBandwidth = 50e6;  // bytes/s of a rank on a busy file system, for the guess

double unix_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TimeLimit::TimeLimit(std::optional<double> end_s, double state_bytes)
    : end_s_(end_s), save_s_(state_bytes / kLeastBandwidth) {}

void TimeLimit::step_took(double seconds) {
  step_s_ = std::max(seconds, 0.9 * step_s_);
}

void TimeLimit::validation_took(double seconds) {
  validation_s_ = std::max(seconds, validation_s_);
}

void TimeLimit::save_took(double seconds) {
  save_s_ = std::max(seconds, 0.5 * save_s_);
}

double TimeLimit::margin_s() const {
  return 2 * step_s_ + validation_s_ + 2 * save_s_ + kLeave_s;
}

bool TimeLimit::reached(double now_s) const {
  return end_s_ && now_s + margin_s() >= *end_s_;
}

std::optional<double> TimeLimit::from_environment() {
  const char* text = std::getenv("SLURM_JOB_END_TIME");
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (code != std::errc{} || end != view.data() + view.size() || value <= 0) return std::nullopt;
  return static_cast<double>(value);
}

StopRequests::StopRequests(RunFolder folder, bool first_rank, TimeLimit limit)
    : folder_(std::move(folder)),
      first_rank_(first_rank),
      limit_(limit),
      start_unix_s_(unix_time_s()) {}

void StopRequests::look() {
  if (!first_rank_ || (looked_ && since_look_.seconds() < kLook_s)) return;
  std::error_code ignored;
  files_.stop = std::filesystem::exists(folder_.stop_file(), ignored);
  files_.save = std::filesystem::exists(folder_.save_file(), ignored);
  looked_ = true;
  since_look_.restart();
}

bool StopRequests::asked() {
  look();
  if (files_.stop) reason_ = "the file STOP";
  if (const int number = stop_signal(); number != 0) reason_ = signal_name(number);
  return files_.stop || stop_signal() != 0;
}

StopRequests::Wish StopRequests::poll() {
  Wish wish{asked(), files_.save};
  if (first_rank_ && !wish.stop && limit_.reached(start_unix_s_ + since_start_.seconds())) {
    reason_ = formatted("the time limit, {} s before it", limit_.margin_s());
    wish.stop = true;
  }
  return wish;
}

void StopRequests::fulfilled(bool stopped) {
  if (!first_rank_) return;
  files_ = {};
  for (const auto& file : {folder_.save_file(), folder_.stop_file()}) {
    if (file == folder_.stop_file() && !stopped) continue;
    std::error_code code;
    std::filesystem::remove(file, code);
    if (code) log::warn(formatted("cannot remove {}: {}", file.string(), code.message()));
  }
}

}  // namespace trireme
