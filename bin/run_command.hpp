#pragma once
#include "comm/launch.hpp"
#include "config/command_line.hpp"

namespace trireme {

/// The body of both programs on one rank (Launch::run): parses and does the command. All ranks end
/// alike where it goes wrong before the command's own work; a page of help is one rank's, and a
/// command of one rank refuses more.
int run_command(const CommandLine& line, const Launch& launch, int argc, char** argv);

}  // namespace trireme
