#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"
#include "data_prep/bench/bench.hpp"
#include "data_prep/bench/synth.hpp"

namespace trireme {

void add_bench_command(config::CommandLine& line) {
  config::Command& command =
      line.command("bench", "measure how fast this machine encodes and packs your text");
  const auto config = command.settings<data_prep::BenchConfig>("bench");
  command.example("trireme-data bench --tokenizer tok --input corpus.jsonl --threads 2 --json")
      .run([config] {
        const data_prep::BenchReport report = data_prep::run_bench(*config);
        print(config->json ? data_prep::bench_json(report) : data_prep::bench_text(report));
        return kExitDone;
      });
}

void add_synth_command(config::CommandLine& line) {
  config::Command& command = line.command(
      "synth", "write a synthetic corpus: stories, sums, questions in English and Chinese");
  const auto config = command.settings<data_prep::SynthConfig>("synth");
  command.example("trireme-data synth --output corpus.jsonl --documents 20000 --seed 1")
      .run([config] {
        data_prep::write_synth(config->output, config->documents, config->seed, config->force);
        return kExitDone;
      });
}

}  // namespace trireme
