/// Lines as they are typed at a real (pseudo) terminal: a child reads them, this process has the keys
/// and the screen.

#include "core/terminal/line_reader.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

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
constexpr const char* kReady =
    "\x1b[?2004h";  // the reader has the terminal: from here on no key is lost

/// A child that reads lines and reports each on its screen: "line:...", "interrupt", "end".
class Typist : public testing::PseudoTerminal {
 public:
  explicit Typist(const LineReader::Options& options, const char* locale = "C.UTF-8")
      : PseudoTerminal([&] { read_lines(options, locale); }) {
    wait_for(kReady);
  }

  /// What the child says next.
  std::string report() { return between("\x02", "\x03"); }

 private:
  static void read_lines(const LineReader::Options& options, const char* locale) {
    ::setenv("LC_ALL", locale, 1);
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
        std::fputs(("\x02" + text + "\x03").c_str(), stdout);
        std::fflush(stdout);
      }
    }
    ::_exit(0);
  }
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

  typist.type("中文");
  typist.wait_for("中文\r\x1b[6C");  // the cursor behind "> " and two characters of two columns
  typist.type(kLeft);
  typist.wait_for("中文\r\x1b[4C");
  typist.type("x");
  typist.wait_for("中x文\r\x1b[5C");
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
    EXPECT_EQ(typist.wait_for_end(), 0);
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

TEST(LineReader, KeysBetweenTwoLinesWaitForTheNext) {
  Typist typist({});

  // All at once: the child reads the second line after it has reported the first.
  typist.type("one\rtwo\r\x03\x04");

  EXPECT_EQ(typist.report(), "line:one");
  EXPECT_EQ(typist.report(), "line:two");
  EXPECT_EQ(typist.report(), "interrupt");
  EXPECT_EQ(typist.report(), "end");
}

TEST(LineReader, APastedTextIsOneLine) {
  Typist typist({});

  typist.type("\x1b[200~one\ntwo\n\x1b[201~three\r");

  EXPECT_EQ(typist.report(), "line:one\r\ntwo\r\nthree");
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
  typist.wait_for(line + "\r\x1b[92C");  // in 40 columns the cursor would be two rows below
  typist.type("\r");
  EXPECT_EQ(typist.report(), "line:" + line);
}

}  // namespace
}  // namespace trireme
