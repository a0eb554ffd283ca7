#pragma once
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

namespace trireme::testing {

/// A child at a terminal of its own, of which this process has the keys and the screen.
class PseudoTerminal {
 public:
  /// `child` must not return. 24 rows of 40 columns.
  explicit PseudoTerminal(const std::function<void()>& child) {
    winsize size{24, 40, 0, 0};
    child_ = ::forkpty(&keys_, nullptr, nullptr, &size);
    if (child_ != 0) return;
    ::setenv("TERM", "xterm", 1);
    child();
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

  /// Reads the screen until it has `text`, which is behind all that was waited for before.
  void wait_for(std::string_view text) {
    const bool found = gather([&] { return screen_.find(text, passed_) != std::string::npos; });
    ASSERT_TRUE(found) << "no '" << text << "' in: " << screen_.substr(passed_);
    passed_ = screen_.find(text, passed_) + text.size();
  }

  /// What is on the screen between the next `begin` and `end`.
  std::string between(std::string_view begin, std::string_view end) {
    wait_for(begin);
    const std::size_t first = passed_;
    wait_for(end);
    return passed_ < first + end.size() ? "" : screen_.substr(first, passed_ - end.size() - first);
  }

  /// Its exit code; -1: it did not end by itself.
  int wait_for_end() {
    int status = 0;
    ended_ = gather([&] { return ::waitpid(child_, &status, WNOHANG) == child_; });
    return ended_ && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  [[nodiscard]] const std::string& screen() const { return screen_; }

 private:
  template <class Condition>
  bool gather(const Condition& holds) {
    constexpr std::chrono::seconds kLimit{60};
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      pollfd source{keys_, POLLIN, 0};
      ::poll(&source, 1, 50);
      if ((source.revents & POLLIN) == 0) continue;
      std::array<char, 4096> piece{};
      const ssize_t size = ::read(keys_, piece.data(), piece.size());
      if (size > 0) screen_.append(piece.data(), static_cast<std::size_t>(size));
    }
    return true;
  }

  pid_t child_ = -1;
  int keys_ = -1;
  bool ended_ = false;
  std::string screen_;
  std::size_t passed_ = 0;
};

}  // namespace trireme::testing
