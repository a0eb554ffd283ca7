#pragma once
#include <string>
#include <vector>

#include "config/command_line.hpp"

/// Completion in the user's shell, written from the same table that is parsed: commands, options,
/// config keys, values where they are known, files for paths. The script has it all inside, because
/// starting the program for each key press would take a second.
namespace trireme {

/// What the shell offers in one place.
struct CompletedValue {
  std::vector<std::string> words;
  bool files = false;
};

struct CompletedOption {
  std::vector<std::string> names;  // "--output", "-o"
  std::string help;
  bool takes_value = true;
  CompletedValue value;
};

struct CompletedCommand {
  std::string name;  // of one word, or two
  std::string help;
  std::vector<CompletedOption> options;
  CompletedValue arguments;  // those that belong to no option
};

std::vector<CompletedCommand> completed_commands(const std::vector<CommandSpec>& commands);
/// Of two words: the first ones, each once.
std::vector<std::string> completed_groups(const std::vector<CompletedCommand>& commands);

/// For `completion bash|zsh|fish`. Configs must have been checked, which tells the values of keys.
/// Throws Error(usage) for another shell.
std::string completion_script(const std::string& shell, const std::string& program,
                              const std::vector<CommandSpec>& commands);
/// The line that installs it.
std::string completion_place(const std::string& program, const std::string& shell);

/// The same for one shell; `function` is a name that is free there.
std::string bash_completion(const std::string& program, const std::string& function,
                            const std::vector<CompletedCommand>& commands);
std::string zsh_completion(const std::string& program, const std::string& function,
                           const std::vector<CompletedCommand>& commands);
std::string fish_completion(const std::string& program, const std::string& function,
                            const std::vector<CompletedCommand>& commands);

}  // namespace trireme
