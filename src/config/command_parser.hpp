#pragma once
#include <string>
#include <vector>

#include "config/command_line.hpp"

namespace trireme {

enum class ParseOutcome { run, help, help_all, version };

/// Reads `arguments`, those after the command's name, into the targets of its options, and config
/// files, environment and keys into its ConfigSet. Adds what is wrong to `problems`.
ParseOutcome parse_command(const CommandSpec& command, std::vector<std::string> arguments,
                           Problems& problems);

}  // namespace trireme
