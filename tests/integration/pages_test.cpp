/// Commands in the documentation, and the language of the help of all commands.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "core/files/file.hpp"
#include "support/run_program.hpp"
#include "unit/language/allowed.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Returns README.md, docs and the READMEs of the product directories.
std::vector<fs::path> pages() {
  const fs::path root = TRIREME_SOURCE_ROOT;
  std::vector<fs::path> found{root / "README.md"};
  for (const char* folder : {"docs", "slurm", "data_prep", "bin", "src", "checkpoint"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.path().extension() == ".md") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Returns the lines of all ```bash blocks, with continued lines joined and comments removed.
std::vector<std::string> command_lines(const std::string& page) {
  std::vector<std::string> lines;
  std::istringstream text(page);
  bool in_block = false;
  bool goes_on = false;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("```")) {
      in_block = !in_block && line == "```bash";
      continue;
    }
    if (!in_block) continue;
    if (const std::size_t comment = line.find(" # "); comment != std::string::npos)
      line.erase(comment);
    if (const std::size_t wide = line.find("  #"); wide != std::string::npos) line.erase(wide);
    const bool more = line.ends_with('\\');
    if (more) line.pop_back();
    if (goes_on) {
      lines.back() += " " + line;
    } else {
      lines.push_back(line);
    }
    goes_on = more;
  }
  return lines;
}

/// Splits at blanks. Text in quotes is one word without its quotes. Shell operators are words.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words(1);
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        words.back() += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  std::erase(words, "");
  return words;
}

/// Returns the program and the command that a word of a shell line starts; empty if it starts none.
std::vector<std::string> started_by(const std::string& word) {
  static const std::map<std::string, std::vector<std::string>> kScripts{
      {"pretrain_a100.sbatch", {"trireme", "pretrain"}},
      {"pretrain_h100.sbatch", {"trireme", "pretrain"}},
      {"sft_a100.sbatch", {"trireme", "sft"}},
      {"dpo_a100.sbatch", {"trireme", "dpo"}},
      {"kto_a100.sbatch", {"trireme", "kto"}},
      {"reward_a100.sbatch", {"trireme", "reward"}},
      {"distill_a100.sbatch", {"trireme", "distill"}},
      {"grpo_a100.sbatch", {"trireme", "rl"}},
      {"train_a100.sbatch", {"trireme"}},
      {"prep.sbatch", {"trireme-data", "pack"}},
      {"tokenizer.sbatch", {"trireme-data", "tokenizer", "train"}},
      {"eval.sbatch", {"trireme", "eval"}},
      {"export.sbatch", {"trireme", "export"}},
      {"serve.sbatch", {"trireme", "serve"}}};
  const std::string name = fs::path(word).filename().string();
  if (name == "trireme" || name == "trireme-data") return {name};
  const auto script = kScripts.find(name);
  return script == kScripts.end() ? std::vector<std::string>{} : script->second;
}

class Pages : public testing::RunProgram {
 protected:
  /// Returns the text of `COMMAND --help-all`; empty if there is no such command.
  const std::string& help(const std::vector<std::string>& command) {
    const auto [found, is_new] = help_.emplace(command, "");
    if (is_new) {
      std::vector<std::string> arguments{command[0] == "trireme" ? TRIREME_PROGRAM
                                                                 : TRIREME_DATA_PROGRAM};
      arguments.insert(arguments.end(), command.begin() + 1, command.end());
      arguments.emplace_back("--help-all");
      const testing::Exit exit = testing::Process(arguments, {}, path("help.log")).wait(kLimit_s);
      if (exit.code == 0) found->second = exit.out;
    }
    return found->second;
  }

  /// Checks each command of a shell line. Returns the number of commands.
  int check_line(const std::string& line, const std::string& where) {
    int commands = 0;
    std::vector<std::string> command;
    bool is_whole = false;  // all words of the command have been read
    if (line.starts_with("ninja ") || line.starts_with("docker "))
      return 0;  // names of targets and images
    for (const std::string& word : words_of(line)) {
      if (word == "|" || word == "&&" || word == ";" || word == ":" || word.starts_with(">")) {
        command.clear();
      } else if (word == "--" && !command.empty()) {
        command.resize(1);  // submit -- pretrain ...
        is_whole = false;
      } else if (command.empty()) {
        command = started_by(word);
        is_whole = command.size() > 1;
        commands += is_whole ? 1 : 0;
      } else if (!is_whole && !word.starts_with("-") && extend(command, word)) {
        commands += command.size() == 2 ? 1 : 0;
      } else {
        is_whole = true;
        check_word(command, word, where);
      }
    }
    return commands;
  }

 private:
  /// Appends `word` to `command` if the result is a command. Returns false if it is not.
  bool extend(std::vector<std::string>& command, const std::string& word) {
    std::vector<std::string> longer = command;
    longer.push_back(word);
    if (!is_group(longer) && help(longer).empty()) return false;
    command = longer;
    return true;
  }

  /// Returns true for the first word of a command with two words.
  static bool is_group(const std::vector<std::string>& command) {
    const std::vector<std::string> groups{"checkpoint", "bench", "config", "job", "tokenizer"};
    return command.size() == 2 && std::ranges::count(groups, command[1]) > 0;
  }

  void check_word(const std::vector<std::string>& command, const std::string& word,
                  const std::string& where) {
    const bool is_other = word == "help" || word == "COMMAND" || word == "--version";
    if (command.size() == 1 && !is_other) ADD_FAILURE() << where << ": no command " << word;
    if (command.size() == 1 || !word.starts_with("--")) return;
    const std::string option = word.substr(0, word.find('='));
    if (help(command).find(option) == std::string::npos)
      ADD_FAILURE() << where << ": " << command.back() << " has no option " << option;
  }

  // Pages of help are kept for all tests of this file: each program start takes 0.2 s.
  inline static std::map<std::vector<std::string>, std::string> help_;
};

TEST_F(Pages, NameCommandsAndOptionsThatExist) {
  int commands = 0;
  for (const fs::path& page : pages()) {
    for (const std::string& line : command_lines(read_file(page))) {
      const std::string where = page.lexically_relative(TRIREME_SOURCE_ROOT).string() + ": " + line;
      commands += check_line(line, where);
    }
  }
  EXPECT_GE(commands, 60);
}

/// Returns the names of the commands in the page of `PROGRAM --help`, each as its words.
std::vector<std::vector<std::string>> commands_of(const std::string& program,
                                                  const std::string& page) {
  std::vector<std::vector<std::string>> commands;
  std::istringstream lines(page.substr(std::min(page.find("\ncommands:\n") + 11, page.size())));
  for (std::string line; std::getline(lines, line) && !line.empty();) {
    if (!line.starts_with("  ") || line[2] == ' ') continue;
    commands.push_back(words_of(line.substr(2, line.find("  ", 2) - 2)));
    commands.back().insert(commands.back().begin(), program);
  }
  return commands;
}

TEST_F(Pages, HelpIsPlainEnglishInLinesOfAtMost100Columns) {
  std::vector<language::Finding> findings;
  for (const std::string program : {"trireme", "trireme-data"}) {
    std::vector<std::vector<std::string>> commands = commands_of(program, help({program}));
    EXPECT_GE(commands.size(), 10U) << program;
    commands.push_back({program});
    std::set<std::string> problems;  // commands share options: each line counts once
    for (const std::vector<std::string>& command : commands) {
      const std::string& page = help(command);
      EXPECT_NE(page, "") << program << " has no help for " << command.back();
      for (const std::string& problem : language::check_help(page)) problems.insert(problem);
    }
    for (const std::string& problem : problems) findings.push_back({"help:" + program, 0, problem});
  }
  const std::string problems =
      language::check_allowed(fs::path(TRIREME_SOURCE_ROOT) / "tests/unit/language/allowed.txt",
                              findings, language::AllowedScope::help);
  if (!problems.empty()) ADD_FAILURE() << problems;
}

}  // namespace
}  // namespace trireme
