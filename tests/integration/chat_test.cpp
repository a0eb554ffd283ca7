/// Runs `trireme chat` with a model that the test trains, with input from a pipe and typed at a
/// terminal.

#include <fstream>

#include "core/escape.hpp"
#include "core/files/file.hpp"
#include "support/pseudo_terminal.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::Process;
using testing::PseudoTerminal;

class ChatProgram : public testing::RunProgram {
 protected:
  static void SetUpTestSuite() {
    RunProgram::SetUpTestSuite();
    ASSERT_EQ(pretrain("base", {"--train.steps", "2", "--model.max_seq_len", "16384"}).code, 0);
    std::ofstream file(path("chats.jsonl"));
    // The chats are longer than a row, which cuts their ends off, so the model learns answers that
    // do not end.
    std::string answer;
    for (int i = 0; i < 100; ++i) answer += "the end ";
    for (int i = 0; i < 12; ++i)
      file << Json{{"messages", {message("user", "the"), message("assistant", answer)}}}.dump()
           << "\n";
    file.close();
    const Arguments pack{
        TRIREME_DATA_PROGRAM, "pack",        "--kind",    "sft",        "--template",
        "minimind-v3",        "--tokenizer", path("tok"), "--input",    path("chats.jsonl"),
        "--seq-len",          "64",          "--output",  path("chats")};
    ASSERT_EQ(Process(pack, {}, path("pack")).wait(kLimit_s).code, 0)
        << read_file(path("pack.err"));
    const Exit tuned =
        trireme({"sft", "--init", path("base"), "--data", path("chats"), "--run", path("model"),
                 "--train.steps", "60", "--optim.lr", "1e-2", "--train.device", "cpu"});
    ASSERT_EQ(tuned.code, 0) << tuned.err;
  }

  static Json message(const char* role, const std::string& content) {
    return {{"role", role}, {"content", content}};
  }

  static Arguments chat(const Arguments& more) {
    Arguments words{TRIREME_PROGRAM,        "chat",     "--checkpoint",
                    path("model").string(), "--device", "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  /// Runs chat with `lines` on standard input.
  static Exit piped(const std::string& lines, const Arguments& more = {}) {
    Arguments words{"sh", "-c", "printf '%b' \"$0\" | \"$@\"", lines};
    for (const std::string& word : chat(more)) words.push_back(word);
    return Process(words, {{"OMP_NUM_THREADS", "1"}}, path("chat")).wait(kLimit_s);
  }

  /// Returns the greedy answer of `trireme generate` to these messages.
  static std::string answer_to(const Json& messages) {
    std::ofstream(path("messages.jsonl")) << Json{{"messages", messages}}.dump() << "\n";
    const Exit exit = trireme({"generate", "--checkpoint", path("model").string(), "--prompts",
                               path("messages.jsonl").string(), "--max-tokens", "6",
                               "--temperature", "0", "--json"});
    EXPECT_EQ(exit.code, 0) << exit.err;
    return Json::parse(exit.out, nullptr, false).value("text", "");
  }

  /// Starts chat at a terminal and waits until it reads keys.
  static std::unique_ptr<PseudoTerminal> typed(const Arguments& more) {
    auto terminal = std::make_unique<PseudoTerminal>([&] {
      Arguments words = chat(more);
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      ::setenv("OMP_NUM_THREADS", "1", 1);
      ::execv(pointers.front(), pointers.data());
    });
    terminal->wait_for_prompt();
    terminal->forget_screen();
    return terminal;
  }

  static void enter(PseudoTerminal& terminal, const std::string& line) {
    terminal.type(line + "\r");
    terminal.wait_for_prompt("\n> ");
  }
};

TEST_F(ChatProgram, AnswersLineByLineAsGenerateDoes) {
  Json talk = {message("system", "be kind"), message("user", "the 你好\nend")};
  const std::string first = answer_to(talk);
  talk.push_back(message("assistant", first));
  talk.push_back(message("user", "/more"));
  const std::string second = answer_to(talk);
  talk.push_back(message("assistant", second));
  const std::string saved = path("saved.jsonl").string();

  const Exit exit =
      piped("/clear\n\"\"\"the 你好\nend\"\"\"\n\n//more\n/save " + saved + "\n/exit\nnot read\n",
            {"--max-tokens", "6", "--temperature", "0", "--system", "be kind"});

  EXPECT_EQ(exit.code, 0) << exit.err;
  const auto line = [](const std::string& text) {
    return escape_controls(text) + (text.ends_with('\n') ? "" : "\n");
  };
  EXPECT_EQ(exit.out, line(first) + line(second));
  EXPECT_EQ(Json::parse(read_file(saved)).at("messages"), talk);
}

TEST_F(ChatProgram, TheEndOfAScriptEndsItsMessageToo) {
  const Arguments greedy{"--max-tokens", "6", "--temperature", "0"};
  EXPECT_EQ(piped("\"\"\"the\nend\n", greedy).out, piped("\"\"\"the\nend\n\"\"\"\n", greedy).out);
  EXPECT_NE(piped("\"\"\"the\nend\n", greedy).out, "");
}

TEST_F(ChatProgram, GivesAnotherAnswerAndTheSameAgainTheNextTime) {
  const Arguments hot{"--max-tokens", "12", "--temperature", "9", "--seed", "4"};

  const std::string once = piped("the\n", hot).out;
  const std::string twice = piped("the\n/regen\n", hot).out;

  ASSERT_TRUE(twice.starts_with(once)) << once << twice;
  EXPECT_NE(twice, once + once);
  EXPECT_EQ(piped("the\n/regen\n", hot).out, twice);
}

TEST_F(ChatProgram, EndsAScriptAtItsFirstMistake) {
  expect_refused(piped("/regn\nHi\n"), 2, {"/regn", "/regen"});
  expect_refused(piped("/set top_p 2\n"), 2, {"top_p = 2"});
  expect_refused(piped("Hi\n/save /proc/none/chat.jsonl\n"), 2, {"/proc/none/chat.jsonl"});
  expect_refused(piped("/save " + path("none.jsonl").string() + "\n"), 2, {"no answer yet"});
  EXPECT_FALSE(std::filesystem::exists(path("none.jsonl")));
  expect_refused(piped("\\0377\\0376\n"), 3, {"standard input"});
  EXPECT_EQ(piped("").code, 0);
}

TEST_F(ChatProgram, WarnsOnACpuOnlyIfGraphsAreAskedFor) {
  const char* warning = "decoding runs without CUDA graphs: the model is not on a GPU";
  EXPECT_EQ(count(piped("the\n", {"--max-tokens", "2", "--cuda-graph", "true"}).err, warning), 1U);
  EXPECT_EQ(count(piped("the\n", {"--max-tokens", "2"}).err, warning), 0U);
}

TEST_F(ChatProgram, StopsAnAnswerAndContinuesAtATerminal) {
  const auto terminal =
      typed({"--max-tokens", "16000", "--history", path("history").string(), "--temperature", "0"});

  terminal->type("Once\r");
  terminal->wait_until([&] { return terminal->screen().size() > 100; });
  terminal->type("\x03");
  terminal->wait_for("stopped: ");
  terminal->wait_for_prompt("\n> ");
  terminal->forget_screen();

  enter(*terminal, "/set max_tokens 0");
  EXPECT_NE(terminal->screen().find("max_tokens = 0, must be"), std::string::npos);
  terminal->forget_screen();
  enter(*terminal, "/set max_tokens 5");
  terminal->forget_screen();
  enter(*terminal, "/re\t");  // a completed word gives another answer
  EXPECT_NE(terminal->screen().find(" tokens/s"), std::string::npos) << terminal->screen();

  terminal->type("\x04");
  EXPECT_EQ(terminal->wait_for_end(), 0);
  EXPECT_NE(read_file(path("history")).find("Once"), std::string::npos);
}

}  // namespace
}  // namespace trireme
