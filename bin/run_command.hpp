#pragma once
#include "comm/launch.hpp"
#include "config/command_line.hpp"

namespace trireme {

/// The body of both programs on one rank (Launch::run): parses and does the command.
///
/// A command of all ranks brings MPI up, within `limit`. All ranks end with one code if an error
/// comes before the command's own work. Help and a command of one rank leave MPI alone: rank 0, as
/// the launcher counts, prints, and a command of one rank refuses to be one of several.
int run_command(const CommandLine& line, Launch& launch, const StartLimit& limit, int argc,
                char** argv);

}  // namespace trireme
