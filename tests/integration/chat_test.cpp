/// `trireme chat` at a terminal and with pipes, with a model that the test trains.

#include <filesystem>

#include "core/files/file.hpp"
#include "support/pseudo_terminal.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::Process;

class ChatProgram : public testing::RunProgram {
 protected:
  static void SetUpTestSuite() {
    RunProgram::SetUpTestSuite();
    ASSERT_EQ(pretrain("model", {"--train.steps", "3", "--model.max_seq_len", "1024"}).code, 0);
  }

  static Arguments words(const Arguments& more) {
    Arguments words{TRIREME_PROGRAM,   "chat",        "--checkpoint",  path("model").string(),
                    "--chat-template", "minimind-v3", "--temperature", "0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  /// `input`, of a pipe.
  static Exit talk(const std::string& input, const Arguments& more = {}) {
    write_file_atomic(path("input"), input);
    Arguments all{"/bin/sh", "-c", "cat \"$0\" | \"$@\"", path("input").string()};
    const Arguments program = words(more);
    all.insert(all.end(), program.begin(), program.end());
    return Process(all, {{"OMP_NUM_THREADS", "1"}}, path("chat")).wait(kLimit_s);
  }

  /// At a terminal.
  static void at_terminal(const Arguments& more) {
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::setenv("LC_ALL", "C.UTF-8", 1);
    Arguments all = words(more);
    std::vector<char*> pointers;
    for (std::string& word : all) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execv(pointers.front(), pointers.data());
  }
};

TEST_F(ChatProgram, FromAPipeEachLineIsAMessageAndOnlyAnswersArePrinted) {
  const std::filesystem::path saved = path("saved.jsonl");

  const Exit exit = talk("the\n/save " + saved.string() + "\n/clear\nthe\n/save " + saved.string(),
                         {"--max-tokens", "8"});

  ASSERT_EQ(exit.code, 0) << exit.err;
  const std::string lines = read_file(saved);
  const std::size_t end = lines.find('\n') + 1;
  EXPECT_EQ(lines.substr(0, end), lines.substr(end)) << "after /clear it is the same conversation";
  const Json messages = Json::parse(lines.substr(0, end)).at("messages");
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0], (Json{{"role", "user"}, {"content", "the"}}));
  EXPECT_EQ(messages[1].at("role"), "assistant");
  EXPECT_EQ(exit.out.find("/help"), std::string::npos) << exit.out;
}

TEST_F(ChatProgram, AMistakeInAScriptEndsIt) {
  const Exit exit = talk("/sav\nthe\n");

  EXPECT_EQ(exit.code, 2);
  EXPECT_NE(exit.err.find("/save"), std::string::npos) << exit.err;
  EXPECT_EQ(exit.out, "");
}

TEST_F(ChatProgram, AtATerminalCtrlCStopsTheAnswerAndCtrlDEnds) {
  testing::PseudoTerminal terminal([] { at_terminal({"--max-tokens", "100000"}); });
  terminal.wait_for("/help lists commands");
  terminal.wait_for("> ");

  terminal.type("/set max_tokens 900\r");
  terminal.type("你好\r");
  terminal.wait_for("> 你好\r\x1b[6C");
  terminal.wait_for("\n");
  terminal.type("\x03");
  terminal.wait_for("stopped: ");
  terminal.wait_for("tokens/s");
  terminal.type("/sett\r");
  terminal.wait_for("no command /sett");  // and it goes on
  terminal.type("half\x03");
  terminal.type("/set\r");
  terminal.wait_for("max_tokens 900");
  terminal.type("\x04");

  EXPECT_EQ(terminal.wait_for_end(), 0) << terminal.screen();
}

}  // namespace
}  // namespace trireme
