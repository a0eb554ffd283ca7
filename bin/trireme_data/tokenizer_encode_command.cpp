#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"

namespace trireme {

void add_tokenizer_encode_command(CommandLine& line) {
  Command& command = line.command("tokenizer encode", "texts of a jsonl file to token ids");
  const auto config = command.settings<EncodeConfig>("tokenizer_encode");
  command
      .example(
          "trireme-data tokenizer encode --tokenizer tok --input corpus.jsonl --field text "
          "--output ids.jsonl")
      .run([config] {
        encode_file(*config);
        return kExitDone;
      });
}

}  // namespace trireme
