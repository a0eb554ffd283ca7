#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"

namespace trireme {

void add_tokenizer_train_command(CommandLine& line, Launch& launch) {
  Command& command = line.command("tokenizer train", "learn a byte-level BPE tokenizer from jsonl");
  const auto config = command.settings<TrainTokenizerConfig>("tokenizer_train");
  command
      .example("trireme-data tokenizer train --input corpus.jsonl --vocab-size 6400 --output tok")
      .ranks(Ranks::all)
      .run([config, &launch] {
        train_tokenizer(*config, &launch.world());
        return kExitDone;
      });
}

}  // namespace trireme
