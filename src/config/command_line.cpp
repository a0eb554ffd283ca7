#include "config/command_line.hpp"

#include <algorithm>

#include "config/command_help.hpp"
#include "config/completion.hpp"
#include "config/manual_pages.hpp"
#include "core/edit_distance.hpp"
#include "core/escape.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/join.hpp"
#include "core/process/run_main.hpp"

namespace trireme::config {
namespace {

using Words = std::vector<std::string>;

std::string first_word(const std::string& text) {
  return text.substr(0, text.find(' '));
}

bool is_help(const std::string& word) {
  return word == "-h" || word == "--help" || word == "--help-all";
}

bool is_version(const std::string& word) {
  return word == "-V" || word == "--version";
}

/// Returns true for "checkpoint" if there is a command "checkpoint list".
bool is_group(const std::vector<CommandSpec>& commands, const std::string& word) {
  return std::any_of(commands.begin(), commands.end(), [&](const CommandSpec& command) {
    return command.name.starts_with(word + ' ');
  });
}

/// Returns true if there is a command of exactly this name: "plan" has its own page although there
/// is a group with "plan schedule".
bool is_command(const std::vector<CommandSpec>& commands, const std::string& word) {
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CommandSpec& command) { return command.name == word; });
}

/// Returns the command that `arguments` begin with and removes its name from them; null if there is
/// none.
const CommandSpec* choose(const std::vector<CommandSpec>& commands, Words& arguments) {
  for (const std::size_t words : {std::size_t{2}, std::size_t{1}}) {
    if (arguments.size() < words) continue;
    const std::string name =
        words == 2 ? formatted("{} {}", arguments[0], arguments[1]) : arguments[0];
    for (const CommandSpec& command : commands) {
      if (command.name != name) continue;
      arguments.erase(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(words));
      return &command;
    }
  }
  return nullptr;
}

/// Returns "; did you mean 'list'?" for the nearest command of the same group, or for a command of
/// any group that ends with `word`; "" if no command is near.
std::string near_command(const std::vector<CommandSpec>& commands, const std::string& group,
                         const std::string& word) {
  Words known;
  for (const CommandSpec& command : commands) {
    if (command.name.starts_with(group))
      known.push_back(first_word(command.name.substr(group.size())));
    if (group.empty() && command.name.ends_with(' ' + word))
      return formatted("; did you mean '{}'?", command.name);
  }
  if (group.empty()) known.emplace_back("help");
  return did_you_mean(word, known);
}

/// Throws Error(usage) for a command that has no manual page. The message does not list all
/// commands, because `man` without a word prints them.
[[noreturn]] void fail_no_page(const std::string& program, const std::vector<CommandSpec>& commands,
                               const Words& words) {
  const bool in_group = words.size() > 1 && is_group(commands, words[0]);
  const std::string near =
      is_group(commands, words[0]) && !in_group
          ? formatted("; '{}' is a group: give one of its commands", words[0])
          : near_command(commands, in_group ? words[0] + ' ' : "", words[in_group ? 1 : 0]);
  fail(ErrorKind::usage, "no command '{}' has a manual page{}\nsee: {} --help", joined(words, " "),
       near, program);
}

[[noreturn]] void fail_unknown(const CommandHelp& help, const std::string& program,
                               const std::vector<CommandSpec>& commands, const Words& arguments) {
  const bool in_group = !arguments.empty() && is_group(commands, arguments[0]);
  const std::string group = in_group ? arguments[0] + ' ' : "";
  const std::size_t at = in_group ? 1 : 0;
  const std::string name = in_group ? formatted("{} {}", program, arguments[0]) : program;
  const std::string what = arguments.size() > at
                               ? formatted("unknown command '{}{}'{}", group, arguments[at],
                                           near_command(commands, group, arguments[at]))
                               : formatted("'{}' needs a command", name);
  fail(ErrorKind::usage, "{}\n{}see: {} --help", what,
       help.list(in_group ? arguments[0] : "", commands), name);
}

/// Throws Error(usage) if words follow a command in `help WORDS`.
void check_help_words(const std::string& program, const std::vector<CommandSpec>& commands,
                      Words words) {
  const CommandSpec* command = choose(commands, words);
  const auto extra = std::find_if_not(words.begin(), words.end(), is_help);
  if (command == nullptr || extra == words.end()) return;
  fail(ErrorKind::usage, "unexpected argument '{}' after '{} help {}'\nsee: {} help {}", *extra,
       program, command->name, program, command->name);
}

/// Returns the set with the command's config keys or settings; null if it has none.
ConfigSet* set_of(const CommandSpec& command) {
  return command.config != nullptr ? command.config : command.settings.get();
}

void run_check(const CommandSpec& command, Problems& problems) {
  ConfigSet* set = set_of(command);
  if (set == nullptr || !command.check) return;
  try {
    command.check(*set);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    problems.add(error.what());
  }
}

std::function<int()> printed(const std::string& text) {
  return [text] {
    print(text);
    return kExitDone;
  };
}
}  // namespace

CommandLine::CommandLine(std::string program, std::string help,
                         std::function<std::string()> version,
                         std::function<std::string()> version_json)
    : program_(std::move(program)),
      help_(std::move(help)),
      version_(std::move(version)),
      version_json_(std::move(version_json)),
      completion_("completion", "print the shell script that completes commands, options and keys"),
      manual_("man", "print the manual page of a command, or write all manual pages to files") {
  completion_.positional("bash|zsh|fish", &shell_, "name of the shell")
      .example(completion_place(program_, "bash"))
      .example(completion_place(program_, "zsh"))
      .example(completion_place(program_, "fish"))
      .run([this] {
        print(completion_script(shell_, program_, checked_specs()));
        return kExitDone;
      });
  manual_
      .option("--output,-o", &manual_output_, "DIR",
              "write the pages of all commands to this directory; without it, print one page")
      .positional("COMMAND", &manual_words_,
                  "words of the command; none: the page of the program itself", Need::optional)
      .example(formatted("{} man | man -l -", program_))
      .example(formatted("{} man --output ~/.local/share/man/man1", program_))
      .run([this] { return print_manual(); });
}

Command& CommandLine::command(const std::string& name, const std::string& help) {
  return commands_.emplace_back(name, help);
}

void CommandLine::group(const std::string& name, const std::string& help) {
  groups_.push_back({name, help});
}

std::vector<CommandSpec> CommandLine::specs() const {
  std::vector<CommandSpec> specs;
  for (const Command& command : commands_) specs.push_back(command.spec());
  specs.push_back(completion_.spec());
  specs.push_back(manual_.spec());
  return specs;
}

std::vector<CommandSpec> CommandLine::checked_specs() const {
  std::vector<CommandSpec> commands = specs();
  Problems ignored;
  for (const CommandSpec& command : commands) run_check(command, ignored);
  return commands;
}

int CommandLine::print_manual() const {
  const std::vector<CommandSpec> commands = checked_specs();
  const std::string version = version_();
  const ManualPages pages(program_, help_, version.substr(0, version.find('\n')));
  if (!manual_output_.empty()) {
    if (!manual_words_.empty())
      fail(ErrorKind::usage, "--output writes the pages of all commands. Leave out '{}'",
           joined(manual_words_, " "));
    make_directories(manual_output_);
    for (const auto& [name, text] : pages.all(commands))
      write_file_atomic(std::filesystem::path(manual_output_) / name, text);
    return kExitDone;
  }
  if (manual_words_.empty()) {
    print(pages.program(commands));
    return kExitDone;
  }
  Words words = manual_words_;
  const CommandSpec* command = choose(commands, words);
  if (command == nullptr || !words.empty()) fail_no_page(program_, commands, manual_words_);
  print(pages.command(*command));
  return kExitDone;
}

/// Returns the command that will run; none if only help, a version or an error is printed.
std::optional<CommandSpec> CommandLine::chosen(int argc, const char* const* argv) const {
  Words arguments(argv + std::min(argc, 1), argv + argc);
  const std::vector<CommandSpec> specs = this->specs();
  const CommandSpec* command = choose(specs, arguments);
  const bool prints = std::any_of(arguments.begin(), arguments.end(), [](const std::string& word) {
    return is_help(word) || is_version(word);
  });
  if (command == nullptr || prints) return std::nullopt;
  return *command;
}

Ranks CommandLine::ranks(int argc, const char* const* argv) const {
  const auto command = chosen(argc, argv);
  return command ? command->ranks : Ranks::one;
}

void CommandLine::check_ranks(int argc, const char* const* argv, int num_ranks) const {
  const auto command = chosen(argc, argv);
  if (num_ranks == 1 || !command || command->ranks == Ranks::all) return;
  std::vector<std::string> words(argv, argv + argc);
  words.front() = program_;
  fail(
      ErrorKind::usage,
      "'{} {}' takes one rank, this start has {}.\n  Type it without mpirun, or with `srun -n 1` in a job of several tasks: {}",
      program_, command->name, num_ranks, shell_line(words));
}

std::function<int()> CommandLine::parse(int argc, const char* const* argv) const {
  Words arguments(argv + std::min(argc, 1), argv + argc);
  const CommandHelp help(program_);
  const std::vector<CommandSpec> specs = this->specs();
  if (!arguments.empty() && arguments[0] == "help") {  // `help WORDS` is `WORDS --help`
    arguments.erase(arguments.begin());
    if (!arguments.empty() && arguments[0] == "help") {
      if (arguments.size() == 1) return printed(help.of_help());
      fail(ErrorKind::usage, "unexpected argument '{}' after '{} help help'\nsee: {} help help",
           arguments[1], program_, program_);
    }
    check_help_words(program_, specs, arguments);
    arguments.emplace_back("--help");
  }
  if (!arguments.empty() && is_help(arguments[0])) return printed(help.overview(help_, specs));
  if (!arguments.empty() && is_version(arguments[0])) {
    const bool as_json = version_json_ && arguments.size() > 1 && arguments[1] == "--json";
    const std::size_t num_known = as_json ? 2 : 1;
    if (arguments.size() > num_known) {
      const std::vector<std::string> known{"--json"};
      fail(ErrorKind::usage, "unexpected argument '{}' after '{} {}'{}", arguments[num_known],
           program_, arguments[0], as_json ? "" : did_you_mean(arguments[num_known], known));
    }
    return printed(as_json ? version_json_() : version_() + "\n");
  }
  if (arguments.size() > 1 && is_group(specs, arguments[0]) && !is_command(specs, arguments[0])) {
    const auto about = std::find_if(groups_.begin(), groups_.end(), [&](const GroupSpec& group) {
      return group.name == arguments[0];
    });
    const GroupSpec group = about == groups_.end() ? GroupSpec{arguments[0], "commands"} : *about;
    if (is_help(arguments[1])) return printed(help.group(group, specs));
    if (is_version(arguments[1])) return printed(version_() + "\n");
  }
  const CommandSpec* command = choose(specs, arguments);
  if (command == nullptr) fail_unknown(help, program_, specs, arguments);

  Problems own;
  ConfigSet* set = set_of(*command);
  Problems& problems = set != nullptr ? set->problems() : own;
  const ParseOutcome outcome = parse_command(*command, std::move(arguments), problems);
  if (outcome == ParseOutcome::version) return printed(version_() + "\n");
  if (outcome != ParseOutcome::run) {
    Problems ignored;
    run_check(*command, ignored);  // the check registers the allowed values of keys
    return printed(help.command(*command, outcome == ParseOutcome::help_all));
  }
  run_check(*command, problems);
  if (!problems.empty()) problems.add(formatted("see: {} {} --help", program_, command->name));
  problems.throw_if_any();
  return command->body;
}

}  // namespace trireme::config
