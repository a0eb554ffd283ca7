#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/command_line.hpp"

namespace trireme::config {

/// Terms with their meanings.
using HelpRows = std::vector<std::pair<std::string, std::string>>;

/// Writes the text of --help and --help-all.
class CommandHelp {
 public:
  /// `program` is the name before the command.
  explicit CommandHelp(std::string program) : program_(std::move(program)) {}

  /// Returns the page of the program: all commands, one per line.
  [[nodiscard]] std::string overview(const std::string& help,
                                     const std::vector<CommandSpec>& commands) const;
  /// Returns the page of the `help` command.
  [[nodiscard]] std::string of_help() const;
  /// Returns the page of a group: all commands that begin with the name of the group.
  [[nodiscard]] std::string group(const GroupSpec& group,
                                  const std::vector<CommandSpec>& commands) const;
  /// Returns "commands:" and one command per line without the name of the group ("" for all
  /// commands).
  [[nodiscard]] static std::string list(const std::string& group,
                                        const std::vector<CommandSpec>& commands);
  /// Returns the page of a command: usage, options, names and allowed values of the config keys by
  /// section, examples. With `all`, every key in full.
  [[nodiscard]] std::string command(const CommandSpec& command, bool all) const;

  /// Returns the usage of a command in one line: "trireme pretrain --run DIR [options]".
  [[nodiscard]] std::string usage(const CommandSpec& command) const;
  /// Returns the positional arguments and options with their meanings.
  [[nodiscard]] static HelpRows options(const CommandSpec& command);
  /// Returns the ranks that a command takes.
  [[nodiscard]] static const char* ranks(const CommandSpec& command);

 private:
  [[nodiscard]] static std::string config(const ConfigSet& set, bool all);

  std::string program_;
};

}  // namespace trireme::config
