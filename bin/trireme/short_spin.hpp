#pragma once

namespace trireme {

/// Lets the threads of an OpenMP region wait actively for about ten microseconds instead of
/// milliseconds, by starting this program again with GOMP_SPINCOUNT in its environment: GNU's
/// OpenMP reads it once, in a constructor that runs before main. With a busy neighbour on a core a
/// long wait costs a small model most of its speed, because the thread that all others wait for
/// does not run. Does nothing where a setting of the user's exists (GOMP_SPINCOUNT,
/// OMP_WAIT_POLICY), where one thread computes (OMP_NUM_THREADS=1), within a scheduler's job, whose
/// cores are its own, and where the program cannot be started again. Call it before the C library
/// has an environment, with the one that the loader hands over: it allocates nothing.
void use_short_spin(char** argv, const char* const* environment) noexcept;

/// Takes the setting out of this process's environment, so that programs started from here (sbatch)
/// do not inherit it. Call it in main, before other threads exist.
void forget_short_spin() noexcept;

}  // namespace trireme
