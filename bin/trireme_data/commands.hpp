#pragma once
#include "comm/launch.hpp"
#include "config/command_line.hpp"

/// Functions that declare the commands of trireme-data on the CommandLine.
namespace trireme {

/// Commands of all ranks take the launch, which must outlive the CommandLine.
void add_tokenizer_train_command(config::CommandLine& line, comm::Launch& launch);
void add_pack_command(config::CommandLine& line, comm::Launch& launch);
void add_import_command(config::CommandLine& line, comm::Launch& launch);

void add_tokenizer_encode_command(config::CommandLine& line);
void add_tokenizer_decode_command(config::CommandLine& line);
void add_inspect_command(config::CommandLine& line);
void add_verify_command(config::CommandLine& line);
void add_synth_command(config::CommandLine& line);
void add_bench_command(config::CommandLine& line);

}  // namespace trireme
