#include "job/scheduler_job.hpp"

#include <algorithm>
#include <array>
#include <ctime>

#include "core/number.hpp"

namespace trireme {
namespace {

/// Of a job that goes on, or whose end was not a person's wish.
constexpr std::array<std::string_view, 9> kNotCancelled{"RUNNING",     "SUSPENDED",     "STOPPED",
                                                        "CONFIGURING", "TIMEOUT",       "NODE_FAIL",
                                                        "PREEMPTED",   "OUT_OF_MEMORY", "REQUEUED"};

constexpr std::array<std::string_view, 6> kActive{"RUNNING",   "COMPLETING", "CONFIGURING",
                                                  "SUSPENDED", "STOPPED",    "SIGNALING"};

/// "2026-01-31T13:00:00" in local time, as scontrol writes it; none for "Unknown" and the like.
std::optional<double> local_time(const std::string& text) {
  std::tm time{};
  time.tm_isdst = -1;
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const std::time_t seconds = ::mktime(&time);
  return seconds == -1 ? std::nullopt : std::optional(static_cast<double>(seconds));
}

}  // namespace

std::string word_of(std::string_view line, std::string_view key) {
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find_first_of(" \n", at), line.size());
    const std::string_view word = line.substr(at, end - at);
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=')
      return std::string(word.substr(key.size() + 1));
    at = end + 1;
  }
  return "";
}

SchedulerJob SchedulerJob::parse(std::string_view text) {
  SchedulerJob job;
  job.state = word_of(text, "JobState");
  job.known = !job.state.empty();
  job.id = word_of(text, "JobId");
  job.reason = word_of(text, "Reason");
  job.restarts = parse_integer(word_of(text, "Restarts")).value_or(0);
  job.may_requeue = word_of(text, "Requeue") != "0";
  const std::string preempted = word_of(text, "PreemptTime");
  const bool in_this_start = !preempted.empty() && preempted != "None" &&
                             preempted >= word_of(text, "StartTime");  // ISO 8601: order of texts
  job.was_preempted = job.state == "PREEMPTED" || in_this_start;
  job.end_s = local_time(word_of(text, "EndTime"));
  job.error_file = word_of(text, "StdErr");
  return job;
}

bool SchedulerJob::is_cancelled(std::int64_t restart) const {
  if (!known || is_at_time_limit() || was_preempted || restarts > restart) return false;
  return std::find(kNotCancelled.begin(), kNotCancelled.end(), state) == kNotCancelled.end();
}

bool SchedulerJob::is_requeued(std::int64_t restart) const {
  // Within its grace time a preempted job still runs: one that ends by itself then is complete.
  const bool is_put_back = was_preempted && may_requeue && state != "RUNNING";
  return known && (restarts > restart || is_put_back);
}

bool SchedulerJob::is_active() const {
  return std::find(kActive.begin(), kActive.end(), state) != kActive.end();
}

bool SchedulerJob::is_at_time_limit() const {
  return state == "TIMEOUT" || reason == "TimeLimit";
}

}  // namespace trireme
