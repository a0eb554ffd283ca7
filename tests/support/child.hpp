#pragma once
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>

#include "core/error.hpp"

namespace trireme::test {

/// noexcept: nothing may unwind into the parent's code, which the child would then run too.
[[noreturn]] inline void end_with(const std::function<void()>& work) noexcept {
  int code = 0;
  try {
    work();
  } catch (const Error& error) {
    code = exit_code(error.kind());
  }
  ::_exit(code);
}

/// A forked child that does `work` and ends with 0, or with the exit code of the Error that is
/// thrown. Any other exception kills it (SIGABRT).
inline pid_t start_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) end_with(work);
  return child;
}

/// Waits for its end.
inline int status_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

/// The wait status of such a child.
inline int in_child(const std::function<void()>& work) {
  return status_of(start_child(work));
}

/// A wait status as a shell tells it: the exit code, or 128 + the signal.
inline int shell_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// This process may not take more memory.
inline void limit_memory(std::uint64_t bytes) {
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace trireme::test
