#include "scheduler/scheduler.hpp"

#include <cstdlib>

namespace trireme {

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

}  // namespace trireme
