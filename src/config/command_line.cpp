#include "config/command_line.hpp"

#include <algorithm>

#include "config/command_help.hpp"
#include "config/command_parser.hpp"
#include "core/edit_distance.hpp"
#include "core/run_main.hpp"

namespace trireme {
namespace {

using Words = std::vector<std::string>;

std::string first_word(const std::string& text) {
  return text.substr(0, text.find(' '));
}

bool is_help(const std::string& word) {
  return word == "-h" || word == "--help" || word == "--help-all";
}

/// True for "checkpoint" when there is a "checkpoint list".
bool is_group(const std::vector<CommandSpec>& commands, const std::string& word) {
  return std::any_of(commands.begin(), commands.end(), [&](const CommandSpec& command) {
    return command.name.starts_with(word + ' ');
  });
}

/// The command that `arguments` begin with, whose name is then removed from them; null if there is
/// none.
const CommandSpec* choose(const std::vector<CommandSpec>& commands, Words& arguments) {
  for (const std::size_t words : {std::size_t{2}, std::size_t{1}}) {
    if (arguments.size() < words) continue;
    const std::string name = words == 2 ? cat(arguments[0], " ", arguments[1]) : arguments[0];
    for (const CommandSpec& command : commands) {
      if (command.name != name) continue;
      arguments.erase(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(words));
      return &command;
    }
  }
  return nullptr;
}

[[noreturn]] void fail_unknown(const std::string& program,
                               const std::vector<CommandSpec>& commands,
                               const Words& arguments) {
  const bool in_group = !arguments.empty() && is_group(commands, arguments[0]);
  const std::string group = in_group ? arguments[0] + ' ' : "";
  Words known;
  for (const CommandSpec& command : commands) {
    if (!command.name.starts_with(group)) continue;
    const std::string word = first_word(command.name.substr(group.size()));
    if (known.empty() || known.back() != word) known.push_back(word);
  }
  std::string list;
  for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
  const std::size_t at = in_group ? 1 : 0;
  const std::string name = in_group ? cat(program, " ", arguments[0]) : program;
  const std::string what =
      arguments.size() > at
          ? cat("unknown command '", group, arguments[at], "'", did_you_mean(arguments[at], known))
          : cat("'", name, "' needs a command");
  fail(ErrorKind::usage, what, "\ncommands: ", list, "\nsee: ", name, " --help");
}

void run_check(const CommandSpec& command, Problems& problems) {
  if (command.config == nullptr || !command.check) return;
  try {
    command.check(*command.config);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    problems.add(error.what());
  }
}

}  // namespace

CommandLine::CommandLine(std::string program,
                         std::string help,
                         std::function<std::string()> version)
    : program_(std::move(program)), help_(std::move(help)), version_(std::move(version)) {}

Command& CommandLine::command(const std::string& name, const std::string& help) {
  return commands_.emplace_back(name, help);
}

int CommandLine::run(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const CommandHelp help(program_);
  std::vector<CommandSpec> specs;
  for (const Command& command : commands_) specs.push_back(command.spec());
  if (!arguments.empty() && is_help(arguments[0])) {
    print(help.overview("", help_, specs));
    return kExitDone;
  }
  if (!arguments.empty() && arguments[0] == "--version") {
    print(version_() + "\n");
    return kExitDone;
  }
  if (arguments.size() > 1 && is_group(specs, arguments[0]) && is_help(arguments[1])) {
    print(help.overview(arguments[0], help_, specs));
    return kExitDone;
  }
  const CommandSpec* command = choose(specs, arguments);
  if (command == nullptr) fail_unknown(program_, specs, arguments);

  Problems own;
  Problems& problems = command->config != nullptr ? command->config->problems() : own;
  const ParseOutcome outcome = parse_command(*command, std::move(arguments), problems);
  if (outcome != ParseOutcome::run) {
    print(help.command(*command, outcome == ParseOutcome::help_all));
    return kExitDone;
  }
  run_check(*command, problems);
  if (!problems.empty()) problems.add(cat("see: ", program_, " ", command->name, " --help"));
  problems.throw_if_any();
  return command->body();
}

}  // namespace trireme
