#pragma once
#include "comm/launch.hpp"
#include "config/command_line.hpp"

/// Functions that declare the commands of trireme-data on the CommandLine.
namespace trireme {

/// Commands of all ranks take the launch, which must outlive the CommandLine.
void add_tokenizer_train_command(CommandLine& line, Launch& launch);
void add_pack_command(CommandLine& line, Launch& launch);
void add_import_command(CommandLine& line, Launch& launch);

void add_tokenizer_encode_command(CommandLine& line);
void add_tokenizer_decode_command(CommandLine& line);
void add_inspect_command(CommandLine& line);
void add_verify_command(CommandLine& line);
void add_synth_command(CommandLine& line);
void add_bench_command(CommandLine& line);

}  // namespace trireme
