#pragma once
#include "comm/launch.hpp"
#include "config/command_line.hpp"

namespace trireme {

/// Parses the command line on this rank and runs the command; returns the exit code. Both programs
/// call it within Launch::run.
///
/// A command of all ranks starts MPI, within `limit`. If parsing fails on one rank, all ranks end
/// with the same code. Help and commands of one rank do not start MPI: rank 0 of the launcher
/// prints, and a command of one rank fails if the launcher started several.
int run_command(const config::CommandLine& line, comm::Launch& launch,
                const comm::StartLimit& limit, int argc, char** argv);

}  // namespace trireme
