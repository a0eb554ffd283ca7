#pragma once
#include <string>

#include "checkpoint/commands.hpp"
#include "config/command_line.hpp"

namespace trireme {

/// `trireme checkpoint list|verify|hash|inspect`, `export` and `import`.
class CheckpointCommands {
 public:
  explicit CheckpointCommands(CommandLine& line);
  CheckpointCommands(const CheckpointCommands&) = delete;
  CheckpointCommands& operator=(const CheckpointCommands&) = delete;

 private:
  std::string place_;
  ExportCommand export_;
  ImportCommand import_;
};

}  // namespace trireme
