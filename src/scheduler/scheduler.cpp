#include "scheduler/scheduler.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

namespace trireme::scheduler {
namespace {

/// A job in one of these states continues, or was not ended by a user.
constexpr std::array<std::string_view, 9> kNotCancelled{"RUNNING",     "SUSPENDED",     "STOPPED",
                                                        "CONFIGURING", "TIMEOUT",       "NODE_FAIL",
                                                        "PREEMPTED",   "OUT_OF_MEMORY", "REQUEUED"};

constexpr std::array<std::string_view, 6> kActive{"RUNNING",   "COMPLETING", "CONFIGURING",
                                                  "SUSPENDED", "STOPPED",    "SIGNALING"};

}  // namespace

bool SchedulerJob::is_cancelled(std::int64_t restart) const {
  if (!known || is_at_time_limit() || was_preempted || restarts > restart) return false;
  return std::find(kNotCancelled.begin(), kNotCancelled.end(), state) == kNotCancelled.end();
}

bool SchedulerJob::is_requeued(std::int64_t restart) const {
  // A preempted job still runs within its grace time. If it ends by itself then, it is complete.
  const bool is_put_back = was_preempted && may_requeue && state != "RUNNING";
  return known && (restarts > restart || is_put_back);
}

bool SchedulerJob::is_active() const {
  return std::find(kActive.begin(), kActive.end(), state) != kActive.end();
}

bool SchedulerJob::is_at_time_limit() const {
  return state == "TIMEOUT" || reason == "TimeLimit";
}

const Scheduler& scheduler() noexcept {
  for (const Scheduler* one : schedulers())
    if (std::getenv(one->variables().job) != nullptr) return *one;
  return *schedulers().front();
}

SchedulerAnswer ask_scheduler(const std::string& id) {
  return scheduler().ask(id);
}

std::optional<double> job_end_from_scheduler() {
  const std::string id = scheduler().job_id();
  if (id.empty()) return std::nullopt;
  const SchedulerAnswer answer = ask_scheduler(id);
  return answer.jobs.empty() ? std::nullopt : answer.jobs.front().end_s;
}

std::string variable_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace trireme::scheduler
