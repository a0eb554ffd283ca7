/// The stop signals of a trainer, caught before the shared libraries set themselves up:
/// LibTorch's constructors alone take longer than all of our start.

#include "bin/trireme/train_command.hpp"
#include "comm/launchers.hpp"
#include "core/process/stop_signals.hpp"

namespace {

void catch_signals(int argc, char** argv, char** environment) {
  // The C library has no environment of its own yet.
  if (trireme::TrainCommand::is_chosen(argc, argv))
    trireme::install_stop_signals(trireme::launched_rank(environment));
}

// The loader calls what stands here when all libraries are in place and none has run yet.
[[gnu::used, gnu::section(".preinit_array")]] void (*const early)(int, char**,
                                                                  char**) = catch_signals;

}  // namespace
