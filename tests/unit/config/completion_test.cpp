#include "config/completion.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>

#include "core/files/file.hpp"
#include "unit/config/sample.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::config {
namespace {

using Words = std::vector<std::string>;

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// Returns the sorted lines that a shell prints.
Words lines_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 4096> piece{};
  while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), pipe))
    output.append(piece.data(), count);
  EXPECT_EQ(::pclose(pipe), 0) << command << "\n" << output;
  Words lines;
  std::istringstream text(output);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// A program with some of everything, and its scripts in a directory with one file, notes.txt.
class Completion : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    write_file_atomic(at("notes.txt"), "");
    line_.command("train-it", "train; it's from scratch")
        .option("--run", &text_, "DIR", "where the run lives")
        .option("--device,-d", &text_, "auto|cpu|cuda", "where it runs")
        .option("--number", &number_, "N", "how many")
        .flag("--dry-run", flag_, "print, do nothing")
        .config(
            set_,
            [this](ConfigSet& set) {
              set.problems().one_of("model.preset", sample_.model.preset, Words{"tiny", "huge"});
            })
        .alias("--rate", "optim.lr")
        .run([] { return 0; });
    line_.command("checkpoint list", "all of a run")
        .positional("RUN", &text_, "a run folder")
        .run([] { return 0; });
    line_.command("checkpoint verify", "check one").run([] { return 0; });
  }

  /// Writes the output of `completion SHELL` and returns its path.
  std::string script(const char* shell, const char* file) {
    testing::internal::CaptureStdout();
    const std::array<const char*, 3> arguments{"my-tool", "completion", shell};
    EXPECT_EQ(line_.run(3, arguments.data()), 0);
    std::fflush(stdout);
    write_file_atomic(at(file), testing::internal::GetCapturedStdout());
    return at(file).string();
  }

  testing_config::Sample sample_;
  ConfigSet set_{sample_.fields()};
  std::string text_;
  std::int64_t number_ = 1;
  bool flag_ = false;
  CommandLine line_{"my-tool", "does it", [] { return std::string("my-tool 0.1"); }};
};

class InBash : public Completion {
 protected:
  /// Returns the completions of bash for the last word, in the directory of notes.txt.
  Words offered(const Words& words) {
    if (script_.empty()) script_ = script("bash", "bash.sh");
    std::string typed;
    for (const std::string& word : words) typed.append(" ").append(quoted(word));
    const std::string code = formatted(
        "source {}; cd {}; complete -p my-tool > /dev/null || exit 1; COMP_WORDS=(my-tool{}); COMP_CWORD={}; _my_tool; ((${{#COMPREPLY[@]}} == 0)) || printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script_, at("").string(), typed, words.size());
    return lines_of(formatted("bash -u -c {} 2>&1", quoted(code)));
  }

  std::string script_;
};

TEST_F(InBash, CommandsGroupsAndHelp) {
  EXPECT_EQ(offered({""}),
            (Words{"--help", "--version", "checkpoint", "completion", "help", "man", "train-it"}));
  EXPECT_EQ(offered({"ch"}), Words{"checkpoint"});
  EXPECT_EQ(offered({"checkpoint", ""}), (Words{"--help", "list", "verify"}));
  EXPECT_EQ(offered({"help", "checkpoint", "v"}), Words{"verify"});
  EXPECT_EQ(offered({"help", "tr"}), Words{"train-it"});
  EXPECT_EQ(offered({"help", "train-it", ""}), Words{});
  EXPECT_EQ(offered({"completion", "z"}), Words{"zsh"});
}

TEST_F(InBash, OptionsAndKeys) {
  EXPECT_EQ(offered({"train-it", "--d"}), (Words{"--device", "--dry-run"}));
  EXPECT_EQ(offered({"train-it", "--dry-run", "--optim.l"}), Words{"--optim.lr"});
  EXPECT_EQ(offered({"train-it", "--ra"}), Words{"--rate"});
  EXPECT_EQ(offered({"checkpoint", "verify", "--"}), (Words{"--help", "--version"}));
}

TEST_F(InBash, ValuesAndFiles) {
  EXPECT_EQ(offered({"train-it", "--device", "c"}), (Words{"cpu", "cuda"}));
  EXPECT_EQ(offered({"train-it", "-d", "a"}), Words{"auto"});
  EXPECT_EQ(offered({"train-it", "--model.preset", ""}), (Words{"huge", "tiny"}));
  EXPECT_EQ(offered({"train-it", "--model.preset", "=", "t"}), Words{"tiny"});
  EXPECT_EQ(offered({"train-it", "--model.preset", "="}), (Words{"huge", "tiny"}));
  EXPECT_EQ(offered({"train-it", "--model.qk_norm", "f"}), Words{"false"});
  EXPECT_EQ(offered({"train-it", "--number", ""}), Words{});
  EXPECT_EQ(offered({"train-it", "--run", "n"}), Words{"notes.txt"});
  EXPECT_EQ(offered({"checkpoint", "list", "n"}), Words{"notes.txt"});
}

TEST_F(Completion, AnotherShellIsRefusedByName) {
  const std::array<const char*, 3> arguments{"my-tool", "completion", "basch"};
  try {
    line_.run(3, arguments.data());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("bash, zsh, fish; did you mean 'bash'?"),
              std::string::npos)
        << error.what();
  }
}

#ifdef TRIREME_FISH
TEST_F(Completion, FishOffersTheSame) {
  const std::string file = script("fish", "my-tool.fish");
  lines_of(formatted("{} --no-execute {} 2>&1", TRIREME_FISH, file));
  const auto offered = [&](const std::string& typed) {
    const std::string code =
        formatted("cd {}; source {}; complete -C {}", at("").string(), file, quoted(typed));
    Words words =
        lines_of(formatted("HOME={} {} -c {} 2>&1", at("").string(), TRIREME_FISH, quoted(code)));
    for (std::string& word : words) word = word.substr(0, word.find('\t'));
    return words;
  };

  EXPECT_EQ(offered("my-tool "), (Words{"checkpoint", "completion", "help", "man", "train-it"}));
  EXPECT_EQ(offered("my-tool checkpoint "), (Words{"list", "verify"}));
  EXPECT_EQ(offered("my-tool help train"), Words{"train-it"});
  EXPECT_EQ(offered("my-tool train-it --d"), (Words{"--device", "--dry-run"}));
  EXPECT_EQ(offered("my-tool train-it --optim.l"), Words{"--optim.lr"});
  EXPECT_EQ(offered("my-tool train-it --device c"), (Words{"cpu", "cuda"}));
  EXPECT_EQ(offered("my-tool train-it --model.preset="),
            (Words{"--model.preset=huge", "--model.preset=tiny"}));
  EXPECT_EQ(offered("my-tool train-it --number "), Words{});
  EXPECT_EQ(offered("my-tool train-it --run n"), Words{"notes.txt"});
  EXPECT_EQ(offered("my-tool checkpoint list n"), Words{"notes.txt"});
}
#endif

#ifdef TRIREME_ZSH
/// The builtins at the end, which need a terminal, print their arguments instead.
constexpr const char* kZshEnds = R"(
compdef() { : }
compset() { PREFIX=${PREFIX#*=} }
offer() { for candidate in "$@"; do [[ $candidate == "$PREFIX"* ]] && print -r -- $candidate; done; return 0 }
compadd() { shift; offer "$@" }
_describe() { local -a all; all=(${(P)@[-1]}); offer "${(@)all%%:*}" }
_files() { offer *(N) }
)";

TEST_F(Completion, ZshOffersTheSame) {
  const std::string file = script("zsh", "_my-tool");
  lines_of(formatted("{} -n {} 2>&1", TRIREME_ZSH, file));
  const auto offered = [&](const Words& words) {
    std::string typed;
    for (const std::string& word : words) typed.append(" ").append(quoted(word));
    const std::string code =
        formatted("{}cd {}; source {}; words=(my-tool{}); CURRENT={}; PREFIX={}; _my_tool; true",
                  kZshEnds, at("").string(), file, typed, words.size() + 1, quoted(words.back()));
    return lines_of(formatted("{} -f -c {} 2>&1", TRIREME_ZSH, quoted(code)));
  };

  EXPECT_EQ(offered({""}), (Words{"checkpoint", "completion", "help", "man", "train-it"}));
  EXPECT_EQ(offered({"checkpoint", ""}), (Words{"list", "verify"}));
  EXPECT_EQ(offered({"help", "train"}), Words{"train-it"});
  EXPECT_EQ(offered({"help", "train-it", ""}), Words{});
  EXPECT_EQ(offered({"train-it", "--d"}), (Words{"--device", "--dry-run"}));
  EXPECT_EQ(offered({"train-it", "--optim.l"}), Words{"--optim.lr"});
  EXPECT_EQ(offered({"train-it", "--device", "c"}), (Words{"cpu", "cuda"}));
  EXPECT_EQ(offered({"train-it", "--model.preset=t"}), Words{"tiny"});
  EXPECT_EQ(offered({"train-it", "--number", ""}), Words{});
  EXPECT_EQ(offered({"train-it", "--run", "n"}), Words{"notes.txt"});
  EXPECT_EQ(offered({"checkpoint", "list", "n"}), Words{"notes.txt"});
}
#endif

}  // namespace
}  // namespace trireme::config
