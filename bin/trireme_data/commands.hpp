#pragma once
#include "comm/launch.hpp"
#include "config/command_line.hpp"

/// All commands of trireme-data, one form: a function that declares its command on the
/// CommandLine, with the settings of the component that does the work, and says what it does.
namespace trireme {

/// Commands that share their work take the launch, which must outlive the CommandLine.
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
