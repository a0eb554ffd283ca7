#include "bin/trireme/short_spin.hpp"

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "core/process/early_environment.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {
namespace {

// libgomp's own count where threads outnumber the cores (its default elsewhere is 300,000).
constexpr const char* kSpin = "GOMP_SPINCOUNT=1000";
constexpr const char* kStartedAgain = "_TRIREME_SHORT_SPIN";  // the setting is not the user's
constexpr const char* kStartedAgainSet = "_TRIREME_SHORT_SPIN=1";
constexpr std::size_t kMaxVariables = 8192;

bool may_change(const char* const* environment) {
  for (const Scheduler* one : schedulers())
    if (value_in(environment, one->variables().job) != nullptr) return false;
  for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
    if (value_in(environment, name) != nullptr) return false;
  const char* threads = value_in(environment, "OMP_NUM_THREADS");
  return threads == nullptr || std::string_view(threads) != "1";
}

}  // namespace

void use_short_spin(char** argv, const char* const* environment) noexcept {
  if (!may_change(environment)) return;
  static std::array<const char*, kMaxVariables + 3> longer{};
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == kMaxVariables) return;
    longer[count] = environment[count];
  }
  longer[count] = kSpin;
  longer[count + 1] = kStartedAgainSet;
  // By its own path, not by the link in /proc: `ps` shows the name of the file that was started.
  static std::array<char, 4096> program{};
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size() - 1);
  if (length > 0) execve(program.data(), argv, const_cast<char* const*>(longer.data()));
}

void forget_short_spin() noexcept {
  if (std::getenv(kStartedAgain) == nullptr) return;
  unsetenv(kStartedAgain);
  unsetenv("GOMP_SPINCOUNT");
}

}  // namespace trireme
