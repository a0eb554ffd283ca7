#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/command_line.hpp"

namespace trireme::config {

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
  /// Returns the page of a group: all commands whose first word is the name of the group.
  [[nodiscard]] std::string group(const GroupSpec& group,
                                  const std::vector<CommandSpec>& commands) const;
  /// Returns "commands:" and one command per line without the name of the group ("" for all
  /// commands).
  [[nodiscard]] static std::string list(const std::string& group,
                                        const std::vector<CommandSpec>& commands);
  /// Returns the page of a command: usage, options, names and allowed values of the config keys by
  /// section, examples. With `all`, every key in full.
  [[nodiscard]] std::string command(const CommandSpec& command, bool all) const;

 private:
  [[nodiscard]] std::string usage(const CommandSpec& command) const;
  [[nodiscard]] static std::string options(const CommandSpec& command);
  [[nodiscard]] static std::string config(const ConfigSet& set, bool all);

  std::string program_;
};

}  // namespace trireme::config
