#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "data_prep/tokenizer/tokenizer_jobs.hpp"

namespace trireme {

void add_tokenizer_train_command(CommandLine& line, Communicator& world) {
  Command& command = line.command("tokenizer train", "learn a byte-level BPE tokenizer from jsonl");
  const auto config = command.settings<TrainTokenizerConfig>("tokenizer_train");
  command
      .example("trireme-data tokenizer train --input corpus.jsonl --vocab-size 6400 --output tok")
      .ranks(Ranks::all)
      .run([config, &world] {
        train_tokenizer(*config, &world);
        return kExitDone;
      });
}

}  // namespace trireme
