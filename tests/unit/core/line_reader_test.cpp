/// Lines as they are typed at a real (pseudo) terminal: a child reads them, this process has the keys
/// and the screen.

#include "core/terminal/line_reader.hpp"

#include <fcntl.h>
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

#include "core/terminal/interrupts.hpp"
#include "core/terminal/terminal.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

using TypedHistory = Scratch;

constexpr const char* kUp = "\x1b[A";
constexpr const char* kLeft = "\x1b[D";
constexpr const char* kDelete = "\x7f";
constexpr const char* kReady = "\x1b[?2004h";  // Readline has the terminal, and takes pasted texts
constexpr double kLimit_s = 20;

/// A child that reads lines at a terminal of its own and reports each: "line:...", "interrupt", "end".
class Typist {
 public:
  explicit Typist(const LineReader::Options& options, const char* locale = "C.UTF-8") {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    winsize size{24, 40, 0, 0};
    child_ = ::forkpty(&keys_, nullptr, nullptr, &size);
    if (child_ == 0) {
      ::close(ends[0]);
      ::setenv("TERM", "xterm", 1);
      ::setenv("LC_ALL", locale, 1);
      ::setenv("INPUTRC", "/dev/null", 1);
      read_lines(options, ends[1]);
    }
    ::close(ends[1]);
    reports_ = ends[0];
    wait_for_screen(kReady);
    read_ = screen_.size();
  }

  Typist(const Typist&) = delete;
  Typist& operator=(const Typist&) = delete;

  ~Typist() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::close(keys_);
    ::close(reports_);
  }

  void type(std::string_view keys) const {
    EXPECT_EQ(::write(keys_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  /// What the child says next; it is ready for keys again then. A terminal between two lines has keys
  /// of its own: Ctrl-D would be the end of a line that nobody reads.
  std::string report() {
    const auto line = [&] { return reported_.find('\0'); };
    EXPECT_TRUE(gather([&] { return line() != std::string::npos; })) << screen_;
    std::string text = reported_.substr(0, line());
    reported_.erase(0, text.size() + 1);
    screen_.erase(0, read_);
    if (text != "end") wait_for_screen(kReady);
    read_ = screen_.size();
    return text;
  }

  void wait_for_screen(const std::string& text) {
    EXPECT_TRUE(gather([&] { return screen_.find(text) != std::string::npos; })) << screen_;
  }

  /// The child has left, so its history is written.
  void wait_for_end() {
    EXPECT_TRUE(gather([&] { return ::waitpid(child_, nullptr, WNOHANG) == child_; }));
  }

  [[nodiscard]] const std::string& screen() const { return screen_; }

  void resize(unsigned short columns) const {
    const winsize size{24, columns, 0, 0};
    EXPECT_EQ(::ioctl(keys_, TIOCSWINSZ, &size), 0);
  }

 private:
  [[noreturn]] static void read_lines(const LineReader::Options& options, int reports) {
    use_utf8_locale();
    const CatchInterrupts interrupts;
    auto result = LineReader::Result::line;
    {
      LineReader reader(options);
      for (std::string line; result != LineReader::Result::end;) {
        result = reader.read("> ", line);
        std::string text = "end";
        if (result == LineReader::Result::line) text = "line:" + line;
        if (result == LineReader::Result::interrupt) text = "interrupt";
        text.push_back('\0');
        if (::write(reports, text.data(), text.size()) < 0) ::_exit(1);
      }
    }
    ::_exit(0);
  }

  template <class Condition>
  bool gather(const Condition& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kLimit_s);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::array<pollfd, 2> sources{pollfd{keys_, POLLIN, 0}, pollfd{reports_, POLLIN, 0}};
      ::poll(sources.data(), sources.size(), 100);
      if ((sources[0].revents & POLLIN) != 0) take(keys_, screen_);
      if ((sources[1].revents & POLLIN) != 0) take(reports_, reported_);
    }
    return true;
  }

  static void take(int source, std::string& text) {
    std::array<char, 4096> piece{};
    const ssize_t size = ::read(source, piece.data(), piece.size());
    if (size > 0) text.append(piece.data(), static_cast<std::size_t>(size));
  }

  pid_t child_ = -1;
  int keys_ = -1;
  int reports_ = -1;
  std::string screen_;
  std::size_t read_ = 0;  // of the screen, before what is new
  std::string reported_;
};

TEST(LineReader, EditsByCharactersNotBytes) {
  Typist typist({});

  typist.type(std::string("你好") + kDelete + "们\r");
  EXPECT_EQ(typist.report(), "line:你们");
  typist.type(std::string("ab中文") + kLeft + kLeft + "c\r");
  EXPECT_EQ(typist.report(), "line:abc中文");
}

TEST(LineReader, CountsTwoColumnsForAChineseCharacter) {
  Typist typist({});

  typist.type(std::string("中文") + kLeft + "x");
  typist.wait_for_screen("x文");

  // "> ", four columns, two back; then x, and the cursor back over the two of the last character.
  EXPECT_NE(typist.screen().find("中文\b\b"), std::string::npos) << typist.screen();
  EXPECT_NE(typist.screen().find("文\b\b"), std::string::npos) << typist.screen();
  typist.type("\r");
  EXPECT_EQ(typist.report(), "line:中x文");
}

TEST(LineReader, DoesSoInALocaleWithoutUtf8) {
  Typist typist({}, "C");

  typist.type(std::string("你好") + kDelete + "\r");

  EXPECT_EQ(typist.report(), "line:你");
}

TEST_F(TypedHistory, IsRecalledNowAndTheNextTime) {
  const std::filesystem::path history = at("history");
  {
    Typist typist({.history = history, .commands = {}});
    typist.type("first 一\r");
    EXPECT_EQ(typist.report(), "line:first 一");
    typist.type("second\r");
    EXPECT_EQ(typist.report(), "line:second");
    typist.type(std::string(kUp) + kUp + "!\r");
    EXPECT_EQ(typist.report(), "line:first 一!");
    typist.type("\x04");
    EXPECT_EQ(typist.report(), "end");
    typist.wait_for_end();
  }
  Typist typist({.history = history, .commands = {}});

  typist.type(std::string(kUp) + kUp + "\r");

  EXPECT_EQ(typist.report(), "line:second");
}

TEST(LineReader, CtrlCDropsWhatWasTypedAndCtrlDEnds) {
  Typist typist({});

  typist.type("half a li\x03");
  EXPECT_EQ(typist.report(), "interrupt");
  typist.type("whole\r");
  EXPECT_EQ(typist.report(), "line:whole");
  typist.type("\x03");
  EXPECT_EQ(typist.report(), "interrupt");
  typist.type("\x04");
  EXPECT_EQ(typist.report(), "end");
}

TEST(LineReader, APastedTextIsOneLine) {
  Typist typist({});

  typist.type("\x1b[200~one\ntwo\n\x1b[201~three\r");

  EXPECT_EQ(typist.report(), "line:one\ntwo\nthree");
}

TEST(LineReader, TabCompletesCommandsOnly) {
  Typist typist({.history = {}, .commands = {"/regen", "/save"}});

  typist.type("/re\t\r");
  EXPECT_EQ(typist.report(), "line:/regen ");
  typist.type("/us\t/e\tx\r");
  EXPECT_EQ(typist.report(), "line:/us/ex");
}

TEST(LineReader, FollowsANewWidth) {
  Typist typist({});
  typist.resize(100);

  const std::string line(90, 'a');
  typist.type(line);
  typist.wait_for_screen(line);  // in 40 columns it would be broken
  typist.type("\r");
  EXPECT_EQ(typist.report(), "line:" + line);
}

}  // namespace
}  // namespace trireme
