#include <memory>

#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "data_prep/import/import.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kNoEotGiven = -2;

}  // namespace

void add_import_command(CommandLine& commands, const DataProgram& program) {
  struct Options {
    ImportConfig config;
    std::string eot = "auto";
    std::string progress = "auto";
    std::int64_t eot_id = kNoEotGiven;
  };

  const auto options = std::make_shared<Options>();
  ImportConfig& config = options->config;
  commands
      .command("import",
               "token files of another program to a folder of token shards; nothing is tokenized")
      .option("--format", &config.format, "megatron|llm.c", "who wrote the inputs", Need::required)
      .option("--input", &config.inputs, "FILE...",
              "in order; megatron: prefix or .bin, its .idx beside it", Need::required)
      .option("--output", &config.output, "DIR", "folder: new, empty, or of the same import",
              Need::required)
      .option("--tokenizer", &config.tokenizer, "DIR|FILE",
              "the one that made the tokens; without it checkpoints of the set cannot generate")
      .option("--vocab-size", &config.vocab_size, "V", "without a tokenizer: ids are below V")
      .option("--seq-len", &config.seq_len, "L",
              "sequence length to prepare; training at another one works as well")
      .option("--eot-id", &options->eot_id, "ID",
              "llm.c: token at document borders (50256, u32 files 128000); -1: none")
      .option("--eot", &options->eot, "auto|start|end",
              "llm.c: the token starts or ends a document; auto: as the file begins")
      .option("--shard-tokens", &config.shard_tokens, "N", "tokens of a shard, about")
      .option("--progress", &options->progress, "auto|bar|log|none", "how progress is shown")
      .example(
          "trireme-data import --format megatron --input my-gpt2_text_document --tokenizer tok "
          "--seq-len 2048 --output data/train")
      .example(
          "trireme-data import --format llm.c --input fineweb_train_*.bin --tokenizer gpt2 "
          "--output data/train")
      .run([options, &program] {
        ImportConfig& asked = options->config;
        asked.eot = parse_eot_place(options->eot);
        asked.progress = parse_progress_mode(options->progress);
        if (options->eot_id != kNoEotGiven) asked.eot_id = options->eot_id;
        const ImportReport report = import_tokens(asked, &program.world());
        if (program.rank() == 0) {
          log::info(formatted("{}: {} shards, {} of them kept from before, in {}", asked.output,
                              report.units, report.kept, format_duration(report.seconds)));
          if (asked.tokenizer.empty())
            log::warn("the set has no tokenizer: checkpoints of it cannot generate text");
        }
        return kExitDone;
      });
}

}  // namespace trireme
