#pragma once
#include <map>
#include <string>
#include <vector>

#include "config/command_line.hpp"

namespace trireme::config {

/// Writes manual pages (man 7 man) from the declared commands: the same options, keys, allowed
/// values and examples as the help. Configs must have been checked before, because the checks
/// register the values of keys.
class ManualPages {
 public:
  /// `version` is the program with its version: "trireme 0.1.0".
  ManualPages(std::string program, std::string help, std::string version)
      : program_(std::move(program)), help_(std::move(help)), version_(std::move(version)) {}

  /// Returns the page of the program: all commands.
  [[nodiscard]] std::string program(const std::vector<CommandSpec>& commands) const;
  /// Returns the page of one command.
  [[nodiscard]] std::string command(const CommandSpec& command) const;
  /// Returns all pages by file name: "trireme.1", "trireme-checkpoint-list.1".
  [[nodiscard]] std::map<std::string, std::string> all(
      const std::vector<CommandSpec>& commands) const;

 private:
  [[nodiscard]] std::string page_name(const std::string& command) const;
  [[nodiscard]] std::string opening(const std::string& name, const std::string& help) const;

  std::string program_;
  std::string help_;
  std::string version_;
};

}  // namespace trireme::config
