#include "core/process/failpoints.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme {
namespace {

struct Fault {
  std::string point;
  long nth = 0;  // 0 means every time
  std::string action;
  long seen = 0;
};

std::atomic<bool> armed{false};
std::mutex mutex;
std::vector<Fault> faults;

/// Parses a count; -1 for `*`.
long parse_count(const std::string& text, std::string_view spec) {
  if (text == "*") return -1;
  long value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value < 0)
    fail(ErrorKind::usage, "TRIREME_FAULT '{}': '{}' must be a number or *", spec, text);
  return value;
}

void check_action(const std::string& action, std::string_view spec) {
  constexpr std::array<std::string_view, 9> kActions{"kill9", "segv",   "stop",  "hang",   "exit",
                                                     "throw", "enospc", "delay", "trigger"};
  if (std::find(kActions.begin(), kActions.end(), action) != kActions.end()) return;
  fail(ErrorKind::usage, "TRIREME_FAULT '{}': action '{}' must be one of {}", spec, action,
       joined(kActions, ", "));
}

/// Counts a call of the point and returns the action that is due, if any.
std::optional<std::string> due(std::string_view point) {
  const std::lock_guard lock(mutex);
  for (Fault& fault : faults) {
    if (fault.point != point) continue;
    ++fault.seen;
    if (fault.nth == 0 || fault.seen == fault.nth) return fault.action;
  }
  return std::nullopt;
}

}  // namespace

void failpoints_init(int rank) {
  const char* spec = std::getenv("TRIREME_FAULT");
  if (spec == nullptr || *spec == '\0') return;
  const char* allowed = std::getenv("TRIREME_ALLOW_FAULTS");
  if (allowed == nullptr || std::string_view(allowed) != "1") {
    fail(
        ErrorKind::usage,
        "TRIREME_FAULT is set without TRIREME_ALLOW_FAULTS=1; it makes this program fail on purpose");
  }
  const std::lock_guard lock(mutex);
  faults.clear();
  for (const std::string& one : split(spec, ',')) {
    const std::vector<std::string> parts = split(one, ':');
    if (parts.size() != 4)
      fail(ErrorKind::usage, "TRIREME_FAULT '{}', must be point:rank:nth:action", one);
    const long wanted_rank = parse_count(parts[1], one);
    const long nth = parse_count(parts[2], one);
    if (nth == 0)
      fail(ErrorKind::usage, "TRIREME_FAULT '{}': calls are counted from 1, or * for every one",
           one);
    check_action(parts[3], one);
    if (wanted_rank == -1 || wanted_rank == rank)
      faults.push_back({parts[0], nth == -1 ? 0 : nth, parts[3]});
  }
  armed = true;
}

void failpoint(std::string_view point) {
  if (!armed.load(std::memory_order_relaxed)) return;
  const auto action = due(point);
  if (!action || *action == "trigger") return;
  if (*action == "kill9") std::raise(SIGKILL);
  if (*action == "segv") std::raise(SIGSEGV);
  if (*action == "stop") std::raise(SIGSTOP);
  while (*action == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (*action == "exit") ::_exit(1);
  if (*action == "delay") std::this_thread::sleep_for(std::chrono::seconds(1));
  if (*action == "throw" || *action == "enospc")
    fail(ErrorKind::resource, "fault injected at {}", point);
}

bool failpoint_triggered(std::string_view point) {
  if (!armed.load(std::memory_order_relaxed)) return false;
  const auto action = due(point);
  return action && *action == "trigger";
}

}  // namespace trireme
