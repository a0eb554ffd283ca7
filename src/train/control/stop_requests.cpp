#include "train/control/stop_requests.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "core/process/stop_signals.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::train {
namespace {

constexpr const char* kStopFile = "STOP";
constexpr const char* kTimeLimit = "time limit";
constexpr std::size_t kMostRequestBytes = 4096;
constexpr double kLeave_s = 10;           // time for metrics, status, MPI_Finalize
constexpr double kLeastBandwidth = 50e6;  // bytes/s of a rank on a busy file system

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

void TimeLimit::forget_past(double now_s) {
  if (!end_s_ || now_s < *end_s_) return;
  log::info(formatted("{} is in the past: it belongs to another job and is ignored",
                      scheduler::scheduler().variables().job_end));
  end_s_.reset();
}

void TimeLimit::moved_to(double end_s) {
  const double by_s = end_s - end_s_.value_or(end_s);
  if (by_s == 0) return;
  log::info(formatted("the scheduler now ends the job {} s {} than before",
                      std::abs(static_cast<std::int64_t>(by_s)), by_s > 0 ? "later" : "earlier"));
  end_s_ = end_s;
}

StopRequests::StopRequests(job::RunDirectory folder, bool first_rank, TimeLimit& limit,
                           AskEnd ask_end)
    : folder_(std::move(folder)),
      first_rank_(first_rank),
      limit_(limit),
      ask_end_(std::move(ask_end)),
      start_unix_s_(unix_time_s()) {
  limit_.forget_past(start_unix_s_);
}

void StopRequests::look() {
  if (!first_rank_ || (!looking_ && looked_ && since_look_.seconds() < kLook_s)) return;
  if (!looking_) {
    looking_ = std::make_shared<Look>();
    looker_.post_inexact([look = looking_, folder = folder_] {
      std::error_code ignored;
      look->stop = std::filesystem::exists(folder.stop_file(), ignored);
      look->save = std::filesystem::exists(folder.save_file(), ignored);
      look->profile = std::filesystem::exists(folder.profile_file(), ignored);
      look->done = true;
    });
    (void)looker_.drain_for(kAnswer_s);
  }
  if (!looking_->done) return;  // the file system is frozen
  files_.stop = looking_->stop;
  files_.save = looking_->save;
  files_.profile = looking_->profile && !keeps_profile_file_;
  if (!looking_->profile) keeps_profile_file_ = false;
  looking_.reset();
  looked_ = true;
  since_look_.restart();
}

bool StopRequests::stop_requested() {
  look();
  if (const int number = stop_signal(); number != 0) requested_by_ = signal_name(number);
  if (files_.stop) requested_by_ = kStopFile;
  return files_.stop || stop_signal() != 0;
}

std::string StopRequests::reason() const {
  if (requested_by_ == kStopFile) return "the file STOP";
  if (requested_by_ == kTimeLimit)
    return formatted("the time limit, {} s before it", limit_.margin_s());
  return requested_by_ == "signal" ? "a signal to another rank" : requested_by_;
}

bool StopRequests::at_time_limit() {
  const auto reached = [this] { return limit_.reached(start_unix_s_ + since_start_.seconds()); };
  if (!reached()) return false;
  if (const auto end = ask_end_ ? ask_end_() : std::nullopt) limit_.moved_to(*end);
  return reached();
}

StopRequests::Request StopRequests::poll() {
  Request request{stop_requested(), files_.save, files_.profile};
  if (first_rank_ && !request.stop && at_time_limit()) {
    requested_by_ = kTimeLimit;
    request.stop = true;
  }
  return request;
}

std::optional<std::string> StopRequests::take_profile_request() {
  const std::filesystem::path file = folder_.profile_file();
  std::optional<std::string> text;
  try {
    text = read_file(file, kMostRequestBytes);
  } catch (const Error& error) {
    log::warn(formatted("no profile: {}", error.what()));
  }
  files_.profile = false;
  looking_.reset();
  std::error_code code;
  std::filesystem::remove(file, code);
  keeps_profile_file_ = static_cast<bool>(code);
  if (code)
    log::warn(formatted("cannot remove {}: {}; it requests no further profile until it is removed",
                        file.string(), code.message()));
  return text;
}

void StopRequests::fulfilled(bool stopped) {
  if (!first_rank_) return;
  files_ = {};
  looking_.reset();
  for (const auto& file : {folder_.save_file(), folder_.stop_file()}) {
    const bool is_stop = file == folder_.stop_file();
    if (is_stop && !stopped) continue;
    std::error_code code;
    if (std::filesystem::remove(file, code) && is_stop) requested_by_ = kStopFile;
    if (code) log::warn(formatted("cannot remove {}: {}", file.string(), code.message()));
  }
}

}  // namespace trireme::train
