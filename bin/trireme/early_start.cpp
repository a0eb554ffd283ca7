/// The steps of the program's start that must come before the shared libraries set themselves up:
/// OpenMP reads its environment there, and LibTorch's constructors alone take longer than all of
/// our start, in which a stop signal would kill the process.

#include "bin/trireme/short_spin.hpp"
#include "bin/trireme/train_command.hpp"
#include "comm/launchers.hpp"
#include "core/process/stop_signals.hpp"

namespace {

void start_early(int argc, char** argv, char** environment) {
  // The C library has no environment of its own yet.
  trireme::use_short_spin(argv, environment);
  if (trireme::is_training_command(argc, argv))
    trireme::install_stop_signals(trireme::launched_rank(environment));
}

// The loader calls this function when all libraries are in place and none has run yet.
[[gnu::used, gnu::section(".preinit_array")]] void (*const early)(int, char**,
                                                                  char**) = start_early;

}  // namespace
