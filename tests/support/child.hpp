#pragma once
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>

#include "core/error.hpp"

namespace trireme::test {

/// noexcept: an exception must not unwind into the parent's code, which the child would then run as
/// well.
[[noreturn]] inline void end_with(const std::function<void()>& work) noexcept {
  int code = 0;
  try {
    work();
  } catch (const Error& error) {
    code = exit_code(error.kind());
  }
  ::_exit(code);
}

/// Forks a child that runs `work` and exits with 0, or with the exit code of a thrown Error. Any
/// other exception kills the child (SIGABRT).
inline pid_t start_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) end_with(work);
  return child;
}

/// Waits until the child exits.
inline int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

/// Runs `work` in a forked child and returns its wait status.
inline int in_child(const std::function<void()>& work) {
  return status_of(start_child(work));
}

/// Converts a wait status to the code that a shell reports: the exit code, or 128 + the signal.
inline int shell_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Limits the address space of this process to `bytes`.
inline void limit_memory(std::uint64_t bytes) {
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace trireme::test
