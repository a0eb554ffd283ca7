#include "scheduler/slurm/jobs.hpp"

#include <algorithm>
#include <ctime>

#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme {
namespace {

/// Parses the local time of scontrol, "2026-01-31T13:00:00"; none for other text such as "Unknown".
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

SchedulerJob read_slurm_job(std::string_view text) {
  SchedulerJob job;
  job.state = word_of(text, "JobState");
  job.known = !job.state.empty();
  job.id = word_of(text, "JobId");
  job.reason = word_of(text, "Reason");
  job.restarts = parse_integer(word_of(text, "Restarts")).value_or(0);
  job.may_requeue = word_of(text, "Requeue") != "0";
  const std::string preempted = word_of(text, "PreemptTime");
  const bool in_this_start =
      !preempted.empty() && preempted != "None" &&
      preempted >= word_of(text, "StartTime");  // ISO 8601 times sort as text
  job.was_preempted = job.state == "PREEMPTED" || in_this_start;
  job.end_s = local_time(word_of(text, "EndTime"));
  job.error_file = word_of(text, "StdErr");
  return job;
}

SchedulerAnswer read_scheduler_answer(int code, std::string_view output) {
  SchedulerAnswer answer;
  if (code != 0) {
    answer.answered = output.find("Invalid job id") != std::string_view::npos;
    return answer;
  }
  answer.answered = true;
  for (const std::string& line : split(output, '\n')) {
    const SchedulerJob job = read_slurm_job(line);
    if (job.known) answer.jobs.push_back(job);
  }
  return answer;
}

}  // namespace trireme
