#include "reward/line_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/files/json_lines.hpp"
#include "core/timer.hpp"

namespace trireme::reward {
namespace {

constexpr std::size_t kMaxAnswerBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxErrorBytes = 2000;

/// Replaces the new process by `sh -c command`. Only async-signal-safe calls are allowed here.
[[noreturn]] void run_shell(const char* command, pid_t parent, std::array<int, 3> files) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent ended before the call of prctl
  for (int target = 0; target < 3; ++target)
    if (::dup2(files[static_cast<std::size_t>(target)], target) < 0) ::_exit(127);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  ::_exit(127);
}

/// Reads the available bytes of a descriptor that does not block. Returns false at its end.
bool read_available(int fd, std::string& into) {
  std::array<char, 1 << 16> buffer{};
  while (true) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got > 0) into.append(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
    if (got < 0 && errno == EAGAIN) return true;
    if (into.size() > kMaxAnswerBytes) return true;
  }
}

void set_nonblocking(const Fd& fd) {
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

/// Replaces bytes that are not UTF-8, and control characters.
std::string printable(std::string_view text) {
  const Json valid = parse_json(json_text(text), "text");
  return escape_controls(valid.get_ref<const std::string&>());
}

}  // namespace

std::string beginning_of(std::string_view line) {
  constexpr std::size_t kMost = 200;
  return printable(line.substr(0, kMost)) + (line.size() > kMost ? "..." : "");
}

struct LineProgram::Exchange {
  std::string to_send;
  std::size_t sent = 0;
  std::size_t expected = 0;
  std::vector<std::string> answers;
  Timer since_answer;
};

LineProgram::~LineProgram() {
  constexpr double kWait_s = 1;
  stop(kWait_s);
}

void LineProgram::start() {
  std::array<int, 2> input{};
  std::array<int, 2> output{};
  std::array<int, 2> errors{};
  const auto check = [&](int result) {
    if (result != 0)
      fail(ErrorKind::resource, "{}: cannot create a pipe: errno {}", config_.key, errno);
  };
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input.data()));
  input_ = Fd(input[0]);
  const Fd program_input(input[1]);
  check(::pipe2(output.data(), O_CLOEXEC));
  output_ = Fd(output[0]);
  const Fd program_output(output[1]);
  check(::pipe2(errors.data(), O_CLOEXEC));
  errors_ = Fd(errors[0]);
  const Fd program_errors(errors[1]);
  set_nonblocking(input_);
  set_nonblocking(output_);
  set_nonblocking(errors_);
  pending_.clear();
  error_tail_.clear();
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0)
    fail(ErrorKind::resource, "{}: cannot start a process: errno {}", config_.key, errno);
  if (pid_ == 0)
    run_shell(config_.command.c_str(), parent,
              {program_input.get(), program_output.get(), program_errors.get()});
  ::setpgid(pid_, pid_);  // also here, so that a kill cannot come before the call in the child
}

bool LineProgram::wait_for_end(double seconds) noexcept {
  const Timer timer;
  while (true) {
    const pid_t ended = ::waitpid(pid_, &status_, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) return true;
    if (timer.seconds() >= seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void LineProgram::stop(double wait_s) noexcept {
  if (pid_ < 0) return;
  input_.reset();
  const bool has_ended = wait_for_end(wait_s);
  ::kill(-pid_, SIGKILL);  // also ends processes that the shell has started
  if (!has_ended)
    while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
  pid_ = -1;
  output_.reset();
  errors_.reset();
}

void LineProgram::read_errors() {
  if (!errors_) return;
  if (!read_available(errors_.get(), error_tail_)) errors_.reset();
  if (error_tail_.size() > kMaxErrorBytes)
    error_tail_.erase(0, error_tail_.size() - kMaxErrorBytes);
}

std::string LineProgram::errors_text() const {
  std::string_view text = error_tail_;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  if (text.empty()) return " It wrote nothing to its standard error.";
  return formatted(" The end of its standard error: {}", printable(text));
}

void LineProgram::fail_ended(const Exchange& state) {
  constexpr double kWait_s = 1;
  const bool has_ended = wait_for_end(kWait_s);
  read_errors();
  std::string how = "closed its output";
  if (has_ended && WIFEXITED(status_))
    how = formatted("ended with exit code {}", WEXITSTATUS(status_));
  if (has_ended && WIFSIGNALED(status_))
    how = formatted("was killed by signal {}", WTERMSIG(status_));
  stop(0);
  fail(ErrorKind::data,
       "{}: the program `{}` {} after {} of {} answers. It must answer each line and run until its "
       "input ends.{}",
       config_.key, config_.command, how, state.answers.size(), state.expected, errors_text());
}

void LineProgram::fail_late(const Exchange& state) {
  read_errors();
  stop(0);
  fail(ErrorKind::resource,
       "{}: the program `{}` did not answer within {} s, after {} of {} answers. It must flush its "
       "output after each line.{}",
       config_.key, config_.command, config_.timeout_s, state.answers.size(), state.expected,
       errors_text());
}

void LineProgram::send(Exchange& state) {
  const std::string_view rest = std::string_view(state.to_send).substr(state.sent);
  const ssize_t sent = ::send(input_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent > 0) state.sent += static_cast<std::size_t>(sent);
  // If the program has closed its input, the end of its output tells what happened.
  if (sent < 0 && errno != EAGAIN && errno != EINTR) state.sent = state.to_send.size();
}

bool LineProgram::receive(Exchange& state) {
  const bool is_open = read_available(output_.get(), pending_);
  std::size_t begin = 0;
  for (std::size_t end = pending_.find('\n'); end != std::string::npos;
       end = pending_.find('\n', begin)) {
    state.answers.push_back(pending_.substr(begin, end - begin));
    state.since_answer.restart();
    begin = end + 1;
  }
  pending_.erase(0, begin);
  if (state.answers.size() > state.expected || pending_.size() > kMaxAnswerBytes) {
    const bool is_long = pending_.size() > kMaxAnswerBytes;
    stop(0);
    fail(ErrorKind::data,
         "{}: the program `{}` wrote {}. It must write one line for each input line.", config_.key,
         config_.command,
         is_long ? "an answer of more than 16 MiB"
                 : formatted("{} too many, so its answers may belong to other input lines",
                             counted(state.answers.size() - state.expected, "line")));
  }
  return is_open;
}

std::vector<std::string> LineProgram::exchange(const std::vector<std::string>& lines) {
  Exchange state;
  if (pid_ < 0) start();
  if (!receive(state)) fail_ended(state);  // an answer before its line is one too many
  state.expected = lines.size();
  for (const std::string& line : lines) state.to_send.append(line).push_back('\n');
  while (state.answers.size() < state.expected) {
    const bool has_more = state.sent < state.to_send.size();
    std::array<pollfd, 3> waits{pollfd{output_.get(), POLLIN, 0},
                                pollfd{errors_ ? errors_.get() : -1, POLLIN, 0},
                                pollfd{has_more ? input_.get() : -1, POLLOUT, 0}};
    constexpr int kLongestWait_ms = 100;
    if (::poll(waits.data(), waits.size(), kLongestWait_ms) < 0 && errno != EINTR)
      fail(ErrorKind::resource, "{}: poll failed with errno {}", config_.key, errno);
    if (waits[1].revents != 0) read_errors();
    if (waits[2].revents != 0) send(state);
    if (waits[0].revents != 0 && !receive(state) && state.answers.size() < state.expected)
      fail_ended(state);
    if (state.answers.size() < state.expected && state.since_answer.seconds() > config_.timeout_s)
      fail_late(state);
  }
  return std::move(state.answers);
}

}  // namespace trireme::reward
