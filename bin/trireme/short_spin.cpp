#include "bin/trireme/short_spin.hpp"

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "scheduler/scheduler.hpp"

namespace trireme {
namespace {

// libgomp's own count where threads outnumber the cores (its default elsewhere is 300,000).
constexpr const char* kSpin = "GOMP_SPINCOUNT=1000";
constexpr const char* kStartedAgain = "_TRIREME_SHORT_SPIN=1";  // the setting is not the user's
constexpr std::size_t kMaxVariables = 8192;

bool sets(std::string_view variable, std::string_view name) {
  return variable.starts_with(name) && variable.substr(name.size()).starts_with('=');
}

bool forbids(std::string_view variable) {
  for (const Scheduler* scheduler : schedulers())
    if (sets(variable, scheduler->variables().job)) return true;
  return sets(variable, "GOMP_SPINCOUNT") || sets(variable, "OMP_WAIT_POLICY") ||
         variable == "OMP_NUM_THREADS=1";
}

}  // namespace

void use_short_spin(char** argv, const char* const* environment) noexcept {
  static std::array<const char*, kMaxVariables + 3> longer{};
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == kMaxVariables || forbids(environment[count])) return;
    longer[count] = environment[count];
  }
  longer[count] = kSpin;
  longer[count + 1] = kStartedAgain;
  // By its own path, not by the link in /proc: `ps` shows the name of the file that was started.
  static std::array<char, 4096> program{};
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size() - 1);
  if (length > 0) execve(program.data(), argv, const_cast<char* const*>(longer.data()));
}

void forget_short_spin() noexcept {
  if (std::getenv("_TRIREME_SHORT_SPIN") == nullptr) return;
  unsetenv("_TRIREME_SHORT_SPIN");
  unsetenv("GOMP_SPINCOUNT");
}

}  // namespace trireme
