#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

namespace trireme::testing {

/// A child process with its own terminal: this process types the keys and reads the screen. The
/// terminal has 40 columns until it is resized.
class PseudoTerminal {
 public:
  /// `work` must not return.
  explicit PseudoTerminal(const std::function<void()>& work, const char* locale = "C.UTF-8") {
    const winsize size{24, 40, 0, 0};
    child_ = ::forkpty(&keys_, nullptr, nullptr, &size);
    if (child_ != 0) return;
    ::setenv("TERM", "xterm", 1);
    ::setenv("LC_ALL", locale, 1);
    ::setenv("HOME", "/nonexistent", 1);  // without a user's .editrc
    work();
    ::_exit(127);
  }

  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  ~PseudoTerminal() {
    if (!ended_) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(keys_);
  }

  void type(std::string_view keys) const {
    EXPECT_EQ(::write(keys_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  void resize(unsigned short columns) const {
    const winsize size{24, columns, 0, 0};
    EXPECT_EQ(::ioctl(keys_, TIOCSWINSZ, &size), 0);
  }

  /// Returns the output since forget_screen().
  [[nodiscard]] const std::string& screen() const { return screen_; }

  /// Forgets the output up to the last prompt, so that the next prompt is a new one.
  void forget_screen() { screen_.erase(0, at_prompt_); }

  /// Reads the screen until `holds` returns true. Fails the test after 60 s.
  template <class Condition>
  void wait_until(const Condition& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << screen_;
      pollfd source{keys_, POLLIN, 0};
      if (::poll(&source, 1, 10) <= 0 || (source.revents & POLLIN) == 0) continue;
      std::array<char, 4096> piece{};
      const ssize_t size = ::read(keys_, piece.data(), piece.size());
      if (size > 0) screen_.append(piece.data(), static_cast<std::size_t>(size));
    }
  }

  void wait_for(const std::string& text) {
    wait_until([&] { return screen_.find(text) != std::string::npos; });
  }

  /// Waits for the prompt and until the child reads single keys, which it does after the prompt.
  /// Until then the terminal edits the line itself, and Ctrl-D would end a line that nobody reads.
  void wait_for_prompt(const std::string& prompt = "> ") {
    wait_for(prompt);
    wait_until([&] {
      termios mode{};
      return ::tcgetattr(keys_, &mode) == 0 && (mode.c_lflag & ICANON) == 0;
    });
    at_prompt_ = screen_.size();
  }

  /// Waits until the child exits and returns its exit code.
  int wait_for_end() {
    int status = 0;
    wait_until([&] {
      ended_ = ended_ || ::waitpid(child_, &status, WNOHANG) == child_;
      return ended_;
    });
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t child_ = -1;
  int keys_ = -1;
  bool ended_ = false;
  std::string screen_;
  std::size_t at_prompt_ = 0;
};

}  // namespace trireme::testing
