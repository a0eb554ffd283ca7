#include "core/process/run_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/timer.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX gives it no header

namespace trireme {
namespace {

/// Starts the program in a process group with both outputs to `out`; -1 if that fails.
pid_t spawn(const std::vector<std::string>& words, int out) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int refused =
      posix_spawnp(&pid, words.front().c_str(), &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return refused == 0 ? pid : -1;
}

/// Reads to the end of the output; returns false if the time limit passes first.
bool read_all_of(int fd, double limit_s, std::string& text) {
  const Timer timer;
  std::array<char, 1 << 14> buffer{};
  while (timer.seconds() < limit_s) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, 100);
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return false;
}

}  // namespace

ProgramEnd run_program(const std::vector<std::string>& words, double limit_s) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    fail(ErrorKind::resource, "cannot make a pipe for {}: errno {}", words.front(), errno);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  ProgramEnd end;
  const pid_t pid = spawn(words, write_end.get());
  write_end.reset();
  if (pid < 0) return end;
  end.timed_out = !read_all_of(read_end.get(), limit_s, end.out);
  if (end.timed_out) ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

}  // namespace trireme
