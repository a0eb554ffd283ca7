#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"
#include "data_prep/bench/bench.hpp"
#include "data_prep/bench/synth.hpp"

namespace trireme {

void add_bench_command(CommandLine& line) {
  Command& command =
      line.command("bench", "measure how fast this machine encodes and packs your text");
  const auto config = command.settings<BenchConfig>("bench");
  command.example("trireme-data bench --tokenizer tok --input corpus.jsonl --threads 2 --json")
      .run([config] {
        const BenchReport report = run_bench(*config);
        print(config->json ? bench_json(report) : bench_text(report));
        return kExitDone;
      });
}

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
