/// The steps of the program's start that must come before the shared libraries set themselves up:
/// OpenMP reads its environment there, and LibTorch's constructors alone take longer than all of
/// our start, in which a stop signal would kill the process.

#include "bin/trireme/early_start.hpp"

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "bin/trireme/train_command.hpp"
#include "comm/launchers.hpp"
#include "core/process/early_environment.hpp"
#include "core/process/stop_signals.hpp"
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

/// Lets the threads of an OpenMP region wait actively for about ten microseconds instead of
/// milliseconds, by starting this program again with GOMP_SPINCOUNT in its environment: GNU's
/// OpenMP reads it once, in a constructor that runs before main. With a busy neighbour on a core a
/// long wait costs a small model most of its speed, because the thread that all others wait for
/// does not run. Does nothing where a setting of the user's exists (GOMP_SPINCOUNT,
/// OMP_WAIT_POLICY), where one thread computes (OMP_NUM_THREADS=1), within a scheduler's job, whose
/// cores are its own, and where the program cannot be started again. Call it before the C library
/// has an environment, with the one that the loader hands over: it allocates nothing.
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

void start_early(int argc, char** argv, char** environment) {
  // The C library has no environment of its own yet.
  use_short_spin(argv, environment);
  if (is_training_command(argc, argv)) install_stop_signals(launched_rank(environment));
}

// The loader calls this function when all libraries are in place and none has run yet.
[[gnu::used, gnu::section(".preinit_array")]] void (*const early)(int, char**,
                                                                  char**) = start_early;

}  // namespace

void forget_short_spin() noexcept {
  if (std::getenv(kStartedAgain) == nullptr) return;
  unsetenv(kStartedAgain);
  unsetenv("GOMP_SPINCOUNT");
}

}  // namespace trireme
