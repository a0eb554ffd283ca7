#pragma once
#include <string>
#include <vector>

#include "config/command_line.hpp"

/// Shell completion, generated from the declared commands: commands, options, config keys, known
/// values, and files for paths. The script contains all words, because starting the program at each
/// key press would take a second.
namespace trireme::config {

/// The words that the shell offers at one position.
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
  std::string name;  // one or two words
  std::string help;
  std::vector<CompletedOption> options;
  CompletedValue arguments;  // positional arguments
};

std::vector<CompletedCommand> completed_commands(const std::vector<CommandSpec>& commands);
/// Returns the first words of the commands of two words, each once.
std::vector<std::string> completed_groups(const std::vector<CompletedCommand>& commands);

/// Returns the script for `shell` (bash, zsh or fish). Configs must have been checked before,
/// because the checks register the values of keys. Throws Error(usage) for another shell.
std::string completion_script(const std::string& shell, const std::string& program,
                              const std::vector<CommandSpec>& commands);
/// Returns the command line that installs the script.
std::string completion_place(const std::string& program, const std::string& shell);

/// These functions return the script for one shell; `function` is a free function name in that
/// shell.
std::string bash_completion(const std::string& program, const std::string& function,
                            const std::vector<CompletedCommand>& commands);
std::string zsh_completion(const std::string& program, const std::string& function,
                           const std::vector<CompletedCommand>& commands);
std::string fish_completion(const std::string& program, const std::string& function,
                            const std::vector<CompletedCommand>& commands);

}  // namespace trireme::config
