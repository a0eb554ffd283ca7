#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"

namespace trireme {

void add_tokenizer_decode_command(CommandLine& line) {
  Command& command = line.command("tokenizer decode", "token ids of a jsonl file to texts");
  const auto config = command.settings<DecodeConfig>("tokenizer_decode");
  command
      .example(
          "trireme-data tokenizer decode --tokenizer tok --input ids.jsonl --output texts.jsonl")
      .run([config] {
        decode_file(*config);
        return kExitDone;
      });
}

}  // namespace trireme
