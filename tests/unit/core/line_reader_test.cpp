/// Lines typed at a pseudo terminal: a child reads them, and this process types the keys and reads
/// the screen.

#include "core/terminal/line_reader.hpp"

#include <gtest/gtest.h>

#include "core/terminal/interrupts.hpp"
#include "core/terminal/terminal.hpp"
#include "support/pseudo_terminal.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

using TypedHistory = Scratch;

constexpr const char* kUp = "\x1b[A";
constexpr const char* kLeft = "\x1b[D";
constexpr const char* kDelete = "\x7f";

/// A child that reads lines and reports each: "line:...", "interrupt", "end".
class Typist {
 public:
  explicit Typist(const LineReader::Options& options, const char* locale = "C.UTF-8") {
    EXPECT_EQ(::pipe2(ends_.data(), O_NONBLOCK), 0);
    terminal_.emplace([&] { read_lines(options, ends_[1]); }, locale);
    terminal_->wait_for_prompt();
  }

  Typist(const Typist&) = delete;
  Typist& operator=(const Typist&) = delete;

  ~Typist() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  testing::PseudoTerminal* operator->() { return &*terminal_; }

  /// Returns the next report of the child, which is ready for keys again then.
  std::string report() {
    std::size_t end = 0;
    terminal_->wait_until([&] {
      std::array<char, 4096> piece{};
      const ssize_t size = ::read(ends_[0], piece.data(), piece.size());
      if (size > 0) reported_.append(piece.data(), static_cast<std::size_t>(size));
      end = reported_.find('\0');
      return end != std::string::npos;
    });
    const std::string text = reported_.substr(0, end);
    reported_.erase(0, text.size() + 1);
    terminal_->forget_screen();
    if (text != "end") terminal_->wait_for_prompt();
    return text;
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

  std::array<int, 2> ends_{};
  std::optional<testing::PseudoTerminal> terminal_;
  std::string reported_;
};

TEST(LineReader, EditsByCharactersNotBytes) {
  Typist typist({});

  typist->type(std::string("你好") + kDelete + "们\r");
  EXPECT_EQ(typist.report(), "line:你们");
  typist->type(std::string("ab中文") + kLeft + kLeft + "c\r");
  EXPECT_EQ(typist.report(), "line:abc中文");
}

TEST(LineReader, CountsTwoColumnsForAChineseCharacter) {
  Typist typist({});

  typist->type(std::string("中文") + kLeft + "x");
  typist->wait_for("x文");

  // "> ", four columns, two back; then x, and the cursor back over the two columns of the last
  // character.
  EXPECT_NE(typist->screen().find("中文\b\b"), std::string::npos) << typist->screen();
  EXPECT_NE(typist->screen().find("文\b\b"), std::string::npos) << typist->screen();
  typist->type("\r");
  EXPECT_EQ(typist.report(), "line:中x文");
}

TEST(LineReader, DoesSoInALocaleWithoutUtf8) {
  Typist typist({}, "C");

  typist->type(std::string("你好") + kDelete + "\r");

  EXPECT_EQ(typist.report(), "line:你");
}

TEST_F(TypedHistory, IsRecalledNowAndTheNextTime) {
  const std::filesystem::path history = at("history");
  {
    Typist typist({.history = history, .commands = {}});
    typist->type("first 一\r");
    EXPECT_EQ(typist.report(), "line:first 一");
    typist->type("second\r");
    EXPECT_EQ(typist.report(), "line:second");
    typist->type(std::string(kUp) + kUp + "!\r");
    EXPECT_EQ(typist.report(), "line:first 一!");
    typist->type("\x04");
    EXPECT_EQ(typist.report(), "end");
    EXPECT_EQ(typist->wait_for_end(), 0);
  }
  Typist typist({.history = history, .commands = {}});

  typist->type(std::string(kUp) + kUp + "\r");

  EXPECT_EQ(typist.report(), "line:second");
}

TEST(LineReader, CtrlCDropsWhatWasTypedAndCtrlDEnds) {
  Typist typist({});

  typist->type("half a li\x03");
  EXPECT_EQ(typist.report(), "interrupt");
  typist->type("whole\r");
  EXPECT_EQ(typist.report(), "line:whole");
  typist->type("\x03");
  EXPECT_EQ(typist.report(), "interrupt");
  typist->type("\x04");
  EXPECT_EQ(typist.report(), "end");
}

TEST(LineReader, ATextThatComesAtOnceIsOneLine) {
  Typist typist({});

  typist->type("one\ntwo\nthree\r");

  EXPECT_EQ(typist.report(), "line:one\ntwo\nthree");
}

TEST(LineReader, TabCompletesCommandsOnly) {
  Typist typist({.history = {}, .commands = {"/regen", "/save"}});

  typist->type("/re\t\r");
  EXPECT_EQ(typist.report(), "line:/regen ");
  typist->type("/us\t/e\tx\r");
  EXPECT_EQ(typist.report(), "line:/us/ex");
}

TEST(LineReader, FollowsANewWidth) {
  Typist typist({});
  typist->resize(100);

  const std::string line(90, 'a');
  typist->type(line);
  typist->wait_for(line);  // with 40 columns it would be wrapped
  typist->type("\r");
  EXPECT_EQ(typist.report(), "line:" + line);
}

}  // namespace
}  // namespace trireme
