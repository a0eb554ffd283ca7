#include <limits>
#include <memory>

#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"
#include "data_prep/bench/synth.hpp"
#include "data_prep/inspect/inspect.hpp"
#include "data_prep/inspect/inspect_document.hpp"

namespace trireme {
namespace {

void add_inspect(CommandLine& commands, const DataProgram& program) {
  struct Options {
    std::string folder;
    bool json = false;
    std::int64_t line = -1;
    std::int64_t sample = -1;
  };

  const auto options = std::make_shared<Options>();
  commands.command("inspect", "what a packed set holds")
      .positional("DIR", &options->folder, "folder that pack made")
      .flag("--json", options->json, "one JSON object")
      .option("--line", &options->line, "N",
              "only the document made from line N (from 0) of the first input, with its mask")
      .option("--sample", &options->sample, "N", "only document N (from 0), with its mask")
      .example("trireme-data inspect data/train --json")
      .example("trireme-data inspect data/sft --line 0 --json")
      .run([options, &program] {
        if (options->line < -1 || options->sample < -1)
          fail(ErrorKind::usage, "--line and --sample must be 0 or more");
        if (options->line >= 0 && options->sample >= 0)
          fail(ErrorKind::usage, "--line and --sample exclude each other");
        if (program.rank() != 0) return kExitDone;
        const TokenSet set = TokenSet::open(options->folder);
        if (options->line < 0 && options->sample < 0) {
          print(options->json ? inspect_json(set) : inspect_text(set));
          return kExitDone;
        }
        const DocumentPlace place =
            options->line >= 0 ? find_line(set, static_cast<std::uint64_t>(options->line))
                               : find_document(set, static_cast<std::uint64_t>(options->sample));
        print(options->json ? document_json(set, place)
                            : document_text(set, place, std::numeric_limits<std::size_t>::max()));
        return kExitDone;
      });
}

void add_verify(CommandLine& commands, const DataProgram& program) {
  struct Options {
    std::string folder;
    bool fast = false;
  };

  const auto options = std::make_shared<Options>();
  commands
      .command("verify",
               "check every byte of a packed set; exit 0, or 3 with the damaged file and place")
      .positional("DIR", &options->folder, "folder that pack made")
      .flag("--fast", options->fast, "all but the tokens themselves")
      .example("trireme-data verify data/train")
      .run([options, &program] {
        if (program.rank() != 0) return kExitDone;
        const TokenSet set = TokenSet::open(options->folder);
        set.verify(options->fast);
        print(formatted("{}: good, {} shards, {} tokens{}", options->folder, set.num_shards(),
                        set.num_tokens(), options->fast ? " (tokens not read)\n" : "\n"));
        return kExitDone;
      });
}

void add_synth(CommandLine& commands, const DataProgram& program) {
  struct Options {
    std::string output;
    std::int64_t documents = 20000;
    std::int64_t seed = 1;
    bool force = false;
  };

  const auto options = std::make_shared<Options>();
  commands
      .command("synth",
               "write the built-in corpus: stories, sums, questions in English and Chinese")
      .option("--output", &options->output, "FILE", "jsonl file", Need::required)
      .option("--documents", &options->documents, "N", "lines, about 210 bytes each")
      .option("--seed", &options->seed, "S", "another seed gives other documents of the same world")
      .flag("--force", options->force, "replace a file that holds something else")
      .example("trireme-data synth --output corpus.jsonl --documents 20000 --seed 1")
      .run([options, &program] {
        if (program.rank() == 0)
          write_synth(options->output, options->documents, options->seed, options->force);
        return kExitDone;
      });
}

}  // namespace

void add_set_commands(CommandLine& commands, const DataProgram& program) {
  add_inspect(commands, program);
  add_verify(commands, program);
  add_synth(commands, program);
}

}  // namespace trireme
