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

  /// All commands whose name begins with `group` ("" for all), one a line.
  [[nodiscard]] std::string overview(std::string_view group,
                                     const std::string& help,
                                     const std::vector<CommandSpec>& commands) const;
  /// About a screen: usage, options, the names of config keys by section, examples. With `all`,
  /// every key in full.
  [[nodiscard]] std::string command(const CommandSpec& command, bool all) const;

 private:
  [[nodiscard]] std::string usage(const CommandSpec& command) const;
  [[nodiscard]] static std::string options(const CommandSpec& command);
  [[nodiscard]] static std::string config(const ConfigSet& set, bool all);

  std::string program_;
};

}  // namespace trireme
