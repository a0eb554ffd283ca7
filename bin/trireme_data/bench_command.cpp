#include <memory>

#include "bin/trireme_data/commands.hpp"
#include "core/process/run_main.hpp"
#include "data_prep/bench/bench.hpp"

namespace trireme {

void add_bench_command(CommandLine& commands, const DataProgram& program) {
  struct Options {
    BenchConfig config;
    bool json = false;
    bool no_pack = false;
  };

  const auto options = std::make_shared<Options>();
  BenchConfig& config = options->config;
  commands.command("bench", "how fast this machine encodes and packs your text")
      .option("--tokenizer", &config.tokenizer, "DIR|FILE", "tokenizer folder or tokenizer.json",
              Need::required)
      .option("--input", &config.inputs, "FILE...", "jsonl files", Need::required)
      .option("--field", &config.field, "NAME", "field that holds the text")
      .option("--special-in-text", &config.special_in_text, "allow|text",
              "added tokens inside a text: matched, or plain characters")
      .option("--threads", &config.threads, "N", "0: all processors at hand")
      .option("--seconds", &config.seconds, "S", "for encode passes; at least one is made")
      .option("--seq-len", &config.seq_len, "L", "tokens of a packed sequence")
      .option("--work", &config.work, "DIR", "where the packed set lies for a moment")
      .flag("--no-pack", options->no_pack, "encode only")
      .flag("--json", options->json, "one JSON object")
      .example("trireme-data bench --tokenizer tok --input corpus.jsonl --threads 2 --json")
      .run([options, &program] {
        if (program.rank() != 0) return kExitDone;
        options->config.pack = !options->no_pack;
        const BenchReport report = run_bench(options->config);
        print(options->json ? bench_json(report) : bench_text(report));
        return kExitDone;
      });
}

}  // namespace trireme
