#pragma once
#include <functional>

#include "comm/communicator.hpp"
#include "config/command_line.hpp"

/// All commands of trireme-data, one form: a function that declares its command on the
/// CommandLine, with the settings of the component that does the work, and says what it does.
namespace trireme {

/// Where the program runs, asked for by a command once it knows that it will do something: so
/// --help and usage errors start no MPI. Must outlive the CommandLine.
struct DataProgram {
  std::function<Communicator&()> world;
  std::function<int()> rank;
};

void add_tokenizer_train_command(CommandLine& line, const DataProgram& program);
void add_tokenizer_encode_command(CommandLine& line, const DataProgram& program);
void add_tokenizer_decode_command(CommandLine& line, const DataProgram& program);
void add_pack_command(CommandLine& line, const DataProgram& program);
void add_import_command(CommandLine& line, const DataProgram& program);
void add_inspect_command(CommandLine& line, const DataProgram& program);
void add_verify_command(CommandLine& line, const DataProgram& program);
void add_synth_command(CommandLine& line, const DataProgram& program);
void add_bench_command(CommandLine& line, const DataProgram& program);

}  // namespace trireme
