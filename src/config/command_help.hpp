#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/command_line.hpp"

namespace trireme {

/// The text of --help and --help-all.
class CommandHelp {
 public:
  /// `program` is the name before the command.
  explicit CommandHelp(std::string program) : program_(std::move(program)) {}

  /// The program's page: all commands, one a line.
  [[nodiscard]] std::string overview(const std::string& help,
                                     const std::vector<CommandSpec>& commands) const;
  /// The page of `help` itself.
  [[nodiscard]] std::string of_help() const;
  /// The page of commands of two words that begin with the group's name.
  [[nodiscard]] std::string group(const GroupSpec& group,
                                  const std::vector<CommandSpec>& commands) const;
  /// "commands:" and one a line, without the name of the group ("" for all).
  [[nodiscard]] static std::string list(const std::string& group,
                                        const std::vector<CommandSpec>& commands);
  /// About a screen: usage, options, the names of config keys by section with the values
  /// that a check allows, examples. With `all`, every key in full.
  [[nodiscard]] std::string command(const CommandSpec& command, bool all) const;

 private:
  [[nodiscard]] std::string usage(const CommandSpec& command) const;
  [[nodiscard]] static std::string options(const CommandSpec& command);
  [[nodiscard]] static std::string config(const ConfigSet& set, bool all);

  std::string program_;
};

}  // namespace trireme
