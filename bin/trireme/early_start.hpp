#pragma once

namespace trireme {

/// Removes the OpenMP setting that early_start.cpp added from this process's environment, so that
/// programs started from here (sbatch) do not inherit it. Call it in main, before other threads
/// exist.
void forget_short_spin() noexcept;

}  // namespace trireme
