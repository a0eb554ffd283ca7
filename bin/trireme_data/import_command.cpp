#include "bin/trireme_data/commands.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "data_prep/import/import.hpp"

namespace trireme {

void add_import_command(config::CommandLine& line, comm::Launch& launch) {
  config::Command& command = line.command(
      "import", "convert token files of another program to token shards, without tokenizing");
  const auto config = command.settings<data_prep::ImportConfig>("import");
  command
      .example(
          "trireme-data import --format megatron --input my_text_document --tokenizer tok "
          "--output data/train")
      .example(
          "trireme-data import --format llm.c --input fineweb_*.bin --tokenizer gpt2 "
          "--output data/train")
      .ranks(config::Ranks::all)
      .run([config, &launch] {
        comm::Communicator& world = launch.world();
        const data_prep::ImportReport report = data_prep::import_tokens(*config, &world);
        if (world.rank() == 0) {
          log::info(formatted("{}: {}, {} of them kept from an earlier start, in {}",
                              config->output, counted(report.partitions, "shard"), report.kept,
                              format_duration(report.seconds)));
          if (config->tokenizer.empty())
            log::warn("the data set has no tokenizer: models trained on it cannot generate text");
        }
        return kExitDone;
      });
}

}  // namespace trireme
