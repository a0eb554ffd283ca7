#pragma once

namespace trireme {

/// Takes the setting of OpenMP's short wait (early_start.cpp) out of this process's environment, so
/// that programs started from here (sbatch) do not inherit it. Call it in main, before other threads
/// exist.
void forget_short_spin() noexcept;

}  // namespace trireme
