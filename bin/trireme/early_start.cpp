/// Start-up steps that must run before the constructors of the shared libraries. OpenMP reads its
/// environment in a constructor. LibTorch's constructors take longer than the rest of the start,
/// and a stop signal during that time would kill the process.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "bin/trireme/commands.hpp"
#include "bin/trireme/train_command.hpp"
#include "comm/launchers.hpp"
#include "core/process/early_environment.hpp"
#include "core/process/stop_signals.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {
namespace {

// libgomp's own value if threads outnumber the cores (its default otherwise is 300,000), about ten
// microseconds. Generation waits many times in each millisecond, and leaves busy cores by itself
// (generate/thread_choice.hpp).
constexpr const char* kSpin = "GOMP_SPINCOUNT=1000";
constexpr const char* kGenerationSpin = "GOMP_SPINCOUNT=10000";
constexpr const char* kStartedAgain = "_TRIREME_SHORT_SPIN";  // the setting is not the user's
constexpr const char* kStartedAgainSet = "_TRIREME_SHORT_SPIN=1";
constexpr std::size_t kMaxVariables = 8192;

bool generates(int argc, const char* const* argv) {
  if (argc < 2) return false;
  const std::string_view command = argv[1];
  return command == "generate" || command == "chat" || command == "serve" ||
         (command == "bench" && argc > 2 && std::string_view(argv[2]) == "generate");
}

bool may_change(const char* const* environment) {
  for (const scheduler::Scheduler* one : scheduler::schedulers())
    if (value_in(environment, one->variables().job) != nullptr) return false;
  for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
    if (value_in(environment, name) != nullptr) return false;
  const char* threads = value_in(environment, "OMP_NUM_THREADS");
  return threads == nullptr || std::string_view(threads) != "1";
}

/// Shortens the active wait of OpenMP threads from milliseconds to about ten microseconds, in
/// generation to a hundred. To do so, it starts this program again with GOMP_SPINCOUNT in the
/// environment, because GNU's OpenMP reads the variable once, in a constructor before main. If
/// another process uses a core, a long active wait costs a small model most of its speed: the thread
/// that all others wait for cannot run.
///
/// Does nothing if the user set GOMP_SPINCOUNT or OMP_WAIT_POLICY, if OMP_NUM_THREADS=1, inside a
/// scheduler's job (which has its own cores), and if the program cannot be started again. Call it
/// before the C library has an environment, with the environment that the loader passes. It
/// allocates nothing.
void use_short_spin(char** argv, const char* const* environment, bool generates_text) noexcept {
  if (!may_change(environment)) return;
  static std::array<const char*, kMaxVariables + 3> longer{};
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == kMaxVariables) return;
    longer[count] = environment[count];
  }
  longer[count] = generates_text ? kGenerationSpin : kSpin;
  longer[count + 1] = kStartedAgainSet;
  // Start the program by its real path, not by the link in /proc: `ps` shows the name of that file.
  static std::array<char, 4096> program{};
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size() - 1);
  if (length > 0) execve(program.data(), argv, const_cast<char* const*>(longer.data()));
}

void start_early(int argc, char** argv, char** environment) {
  // The C library has no environment of its own yet.
  use_short_spin(argv, environment, generates(argc, argv));
  if (is_training_command(argc, argv)) install_stop_signals(comm::launched_rank(environment));
}

// The loader calls this function after it maps all libraries and before it runs their constructors.
[[gnu::used, gnu::section(".preinit_array")]] void (*const early)(int, char**,
                                                                  char**) = start_early;

}  // namespace

void forget_short_spin() noexcept {
  if (std::getenv(kStartedAgain) == nullptr) return;
  unsetenv(kStartedAgain);
  unsetenv("GOMP_SPINCOUNT");
}

}  // namespace trireme
