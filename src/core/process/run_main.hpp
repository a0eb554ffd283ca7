#pragma once
#include <functional>

#include "core/error.hpp"

/// The outermost frame of every program: errors become one message and an exit code.
namespace trireme {

/// Thrown instead of Error if the reader of standard output is gone (`trireme ... | head`). The
/// program exits with 0 and prints nothing.
class BrokenPipe : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "broken pipe"; }
};

/// Runs `body` and returns its value as the exit code, or the code of the error it throws:
///   Error             exit_code(kind)
///   std::bad_alloc    4, like kind resource; others as current_error() (refusal.hpp) converts them
///   anything else     1, like kind internal
/// The message goes to stderr once: `trireme: error: ...`; its further lines are indented by two
/// blanks. `program` is the name before the colon. SIGPIPE and SIGXFSZ are ignored from now on.
/// Standard output is flushed at the end: a broken pipe ends quietly with the body's code, any
/// other write failure is kind resource (a full disk under `> file`).
int run_main(const char* program, const std::function<int()>& body);

/// Ends the process after run_main() without running destructors of static objects. LibTorch's
/// destructors unregister thousands of operations, a fifth of a short command's time. With a
/// sanitizer it is an ordinary exit, because leaks are checked there.
[[noreturn]] void end_process(int code);

/// Writes `text` to standard output. Throws BrokenPipe, or Error(resource) if the system refuses.
void print(std::string_view text);

}  // namespace trireme
