#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "data_prep/bench/synth.hpp"

namespace trireme {

void add_synth_command(CommandLine& line) {
  Command& command = line.command(
      "synth", "write a synthetic corpus: stories, sums, questions in English and Chinese");
  const auto config = command.settings<SynthConfig>("synth");
  command.example("trireme-data synth --output corpus.jsonl --documents 20000 --seed 1")
      .run([config] {
        write_synth(config->output, config->documents, config->seed, config->force);
        return kExitDone;
      });
}

}  // namespace trireme
