#pragma once
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

/// The one error type, its kinds, and the exit codes that are part of every command's interface.

namespace trireme {

enum class ErrorKind {
  internal,  // our own bug
  usage,     // the user can fix it: arguments, config, layout
  data,      // bad input data or checkpoint
  resource,  // memory, disk, device
  comm,      // a peer is lost, or a hang
  numeric,   // diverged
};

/// Exit code of a kind: internal 1, usage 2, data 3, resource 4, comm 5, numeric 6.
int exit_code(ErrorKind kind) noexcept;
std::string_view kind_name(ErrorKind kind) noexcept;

inline constexpr int kExitDone = 0;
inline constexpr int kExitStopped = 75;     // stopped on request after a committed save: resume me
inline constexpr int kExitNoProgress = 93;  // no progress since the last restart

/// The message names the value, what is allowed, and the place:
/// "optim.beta1 = 1.2, must be in [0, 1) (run.toml:12)".
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// All arguments streamed one after another.
template <class... Args>
[[nodiscard]] std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, const Args&... args) {
  throw Error(kind, cat(args...));
}

[[noreturn]] void assertion_failed(const char* what, const char* file, int line);

/// For our own bugs only, never for input. Throws Error(internal).
#define TRIREME_ASSERT(condition)                                                  \
  do {                                                                             \
    if (!(condition)) ::trireme::assertion_failed(#condition, __FILE__, __LINE__); \
  } while (false)

}  // namespace trireme
