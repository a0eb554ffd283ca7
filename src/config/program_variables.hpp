#pragma once
#include <array>
#include <string_view>

namespace trireme {

/// Every TRIREME_ variable that is no configuration key: what our programs, scripts, builds and
/// tests read. A test holds slurm/, bin/ and getenv calls to this list.
inline constexpr std::array<std::string_view, 27> kProgramVariables{
    // programs: failures on purpose
    "TRIREME_FAULT", "TRIREME_ALLOW_FAULTS",
    // also for programs without this key
    "TRIREME_TRAIN_START_TIMEOUT_S",
    // slurm/env.sh
    "TRIREME_HOME", "TRIREME_MODULES", "TRIREME_BIN", "TRIREME_RUNS", "TRIREME_LAUNCH",
    "TRIREME_MPI", "TRIREME_MAX_FAILURES", "TRIREME_CONTROLLER_WAIT", "TRIREME_SPARES",
    "TRIREME_NOTIFY",
    // job scripts, for the programs they start
    "TRIREME_ATTEMPT",
    // where the build finds libraries
    "TRIREME_MPI_ROOT", "TRIREME_HDF5_ROOT", "TRIREME_TORCH_ROOT", "TRIREME_CUDA_ROOT",
    "TRIREME_NCCL_ROOT", "TRIREME_CUDA",
    // tests; TRIREME_TEST_MATRIX=K/N: part K of N of all layouts
    "TRIREME_TEST_DATA", "TRIREME_TEST_KILLS", "TRIREME_TEST_MATRIX", "TRIREME_FAULT_SWEEPS",
    "TRIREME_FAULT_FIRST_SWEEP", "TRIREME_FUZZ_CASES", "TRIREME_CHAT_TEMPLATES"};

}  // namespace trireme
