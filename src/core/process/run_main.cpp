#include "core/process/run_main.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/escape.hpp"
#include "core/files/refusal.hpp"
#include "core/log.hpp"
#include "core/process/open_files.hpp"

namespace trireme {
namespace {

/// Uses one write, so that the messages of several ranks do not mix within a line.
void report(const char* program, std::string_view kind, std::string_view message) {
  std::string text = formatted("{}: {}: ", program, kind);
  for (const char c : escape_controls(message)) {
    text += c;
    if (c == '\n') text += "  ";
  }
  text += '\n';
  log::flush();
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

/// Reports the exception in flight and returns its exit code.
int handle_current(const char* program) {
  try {
    throw;
  } catch (const BrokenPipe&) {
    return kExitDone;
  } catch (...) {
    const Error error = current_error();
    if (error.kind() == ErrorKind::internal) {
      report(program, "internal error", formatted("{}; please report this", error.what()));
    } else {
      report(program, "error", error.what());
    }
    return exit_code(error.kind());
  }
}

/// Checks if the reader of standard output is gone. errno of the failed write may be lost by now,
/// but a pipe without a reader stays in error.
bool reader_is_gone(int error) {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return error == EPIPE || (::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0);
}

/// Prevents a second report if calls of run_main() are nested.
bool output_lost = false;

[[noreturn]] void fail_output(int error) {
  output_lost = true;
  if (reader_is_gone(error)) throw BrokenPipe();
  fail(ErrorKind::resource, "cannot write standard output: {}",
       error == 0 ? "an earlier write failed" : std::strerror(error));
}

void flush_output() {
  if (output_lost) return;
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_output(errno);
}

}  // namespace

void print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_output(errno);
}

int run_main(const char* program, const std::function<int()>& body) {
  std::signal(SIGPIPE, SIG_IGN);  // a write to a closed pipe then fails with EPIPE
  std::signal(SIGXFSZ, SIG_IGN);  // a write past `ulimit -f` then fails with EFBIG
  raise_open_files_limit();
  int code = kExitDone;
  try {
    code = body();
  } catch (...) {
    code = handle_current(program);
  }
  try {
    flush_output();
  } catch (const BrokenPipe&) {
    return code;
  } catch (...) {
    const int flush_code = handle_current(program);
    return code == kExitDone ? flush_code : code;
  }
  return code;
}

void end_process(int code) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::exit(code);
#else
  log::flush();
  std::_Exit(code);
#endif
}

}  // namespace trireme
