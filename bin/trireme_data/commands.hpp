#pragma once
#include <functional>

#include "comm/communicator.hpp"
#include "config/command_line.hpp"

namespace trireme {

/// Where the program runs, asked for by a command once it knows that it will do something: so
/// --help and usage errors start no MPI. Most commands work on rank 0 alone; pack and
/// tokenizer train share their work over `world`. Must outlive the CommandLine.
struct DataProgram {
  std::function<Communicator&()> world;
  std::function<int()> rank;
};

void add_tokenizer_commands(CommandLine& commands, const DataProgram& program);
void add_train_command(CommandLine& commands, const DataProgram& program);  // tokenizer train
void add_pack_command(CommandLine& commands, const DataProgram& program);
void add_bench_command(CommandLine& commands, const DataProgram& program);
void add_import_command(CommandLine& commands, const DataProgram& program);
void add_set_commands(CommandLine& commands, const DataProgram& program);  // inspect, verify, synth

}  // namespace trireme
