#pragma once
#include <array>
#include <string_view>

namespace trireme::config {

/// All TRIREME_ variables that are not configuration keys: variables of programs, scripts, builds
/// and tests. A test compares this list with slurm/, bin/ and all getenv calls.
inline constexpr auto kProgramVariables = std::to_array<std::string_view>(
    {// programs: failure injection
     "TRIREME_FAULT", "TRIREME_ALLOW_FAULTS",
     // programs: directory of compiled CUDA kernels
     "TRIREME_KERNEL_CACHE",
     // a key that programs without the configuration read, too
     "TRIREME_TRAIN_START_TIMEOUT_S",
     // slurm/env.sh
     "TRIREME_HOME", "TRIREME_MODULES", "TRIREME_BIN", "TRIREME_RUNS", "TRIREME_LAUNCH",
     "TRIREME_MPI", "TRIREME_MAX_FAILURES", "TRIREME_CONTROLLER_WAIT", "TRIREME_SPARES",
     "TRIREME_NOTIFY",
     // slurm/lib/settings.sh: a further file of settings
     "TRIREME_ENV",
     // set by the environment module: the installed prefix
     "TRIREME_ROOT",
     // set by job scripts for the programs that they start
     "TRIREME_ATTEMPT",
     // library locations for the build
     "TRIREME_MPI_ROOT", "TRIREME_HDF5_ROOT", "TRIREME_TORCH_ROOT", "TRIREME_CUDA_ROOT",
     "TRIREME_NCCL_ROOT", "TRIREME_ARROW_ROOT", "TRIREME_CUDA", "TRIREME_INSTALL_LIBTORCH",
     // tests; TRIREME_TEST_MATRIX=K/N selects part K of N of all layouts
     "TRIREME_TEST_DATA", "TRIREME_TEST_KILLS", "TRIREME_TEST_MATRIX", "TRIREME_TEST_NODE_RANKS",
     "TRIREME_TEST_PICTURES", "TRIREME_FAULT_SWEEPS", "TRIREME_FAULT_FIRST_SWEEP",
     "TRIREME_FUZZ_CASES", "TRIREME_CHAT_TEMPLATES", "TRIREME_LANGUAGE_UPDATE",
     "TRIREME_TEST_SOCKET"});

}  // namespace trireme::config
