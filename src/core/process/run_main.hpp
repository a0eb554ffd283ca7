#pragma once
#include <functional>

#include "core/error.hpp"

/// The outermost frame of every program: errors become one message and an exit code, never
/// std::terminate's text.
namespace trireme {

/// Thrown instead of an Error when the reader of our standard output went away (`trireme ... |
/// head`): exit 0, silent.
class BrokenPipe : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "broken pipe"; }
};

/// Runs `body` and returns its value as the exit code, or the code of the error it throws:
///   Error             exit_code(kind)
///   std::bad_alloc    4, as kind resource; other foreign ones as current_error (refusal.hpp) says
///   anything else     1, as kind internal
/// The message goes to stderr once: `trireme: error: ...`, further lines of it indented by two
/// blanks. SIGPIPE and SIGXFSZ are ignored from here on, and standard output is flushed at the end:
/// a broken pipe ends quietly with the body's code, any other failure to write standard output is
/// kind resource (a full disk under `> file`). `program` is the name before the colon.
int run_main(const char* program, const std::function<int()>& body);

/// The end of main after run_main, without the destructors of static objects: LibTorch's take apart, one
/// by one, thousands of operations that it registered, a fifth of a short command's time. With a
/// sanitizer an ordinary exit, at which it looks for leaks.
[[noreturn]] void end_process(int code);

/// `text` to standard output. Throws BrokenPipe, or Error(resource) when the system refuses.
void print(std::string_view text);

}  // namespace trireme
