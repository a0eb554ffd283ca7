#pragma once
#include <string>
#include <vector>

#include "core/files/json.hpp"
#include "reward/line_program.hpp"

namespace trireme::reward {

/// Answers calls of tools with a program of the user, which stays running. It reads one line
/// {"name", "arguments"} for each call and writes its result as one line of JSON.
class ToolProgram {
 public:
  ToolProgram(std::string command, double timeout_s)
      : command_(command), program_({std::move(command), "rl.tool_command", timeout_s}) {}

  /// Returns one JSON text for each call. A result of more than 2,048 bytes becomes an error
  /// result. Throws like LineProgram, and Error(data) if a line is not JSON.
  std::vector<std::string> answer(const std::vector<Json>& calls);

 private:
  std::string command_;
  LineProgram program_;
};

}  // namespace trireme::reward
