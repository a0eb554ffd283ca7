#include <limits>

#include "bin/trireme_data/commands.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/inspect/inspect.hpp"
#include "data_prep/inspect/inspect_document.hpp"

namespace trireme {
namespace {

std::string describe(const data_prep::InspectConfig& config) {
  const data::TokenSet set = data::TokenSet::open(config.folder);
  if (config.line == data_prep::InspectConfig::kNone &&
      config.sample == data_prep::InspectConfig::kNone)
    return config.json ? data_prep::inspect_json(set) : data_prep::inspect_text(set);
  const data_prep::DocumentLocation place =
      config.line != data_prep::InspectConfig::kNone
          ? data_prep::find_line(set, static_cast<std::uint64_t>(config.line))
          : data_prep::find_document(set, static_cast<std::uint64_t>(config.sample));
  return config.json
             ? data_prep::document_json(set, place)
             : data_prep::document_text(set, place, std::numeric_limits<std::size_t>::max());
}

}  // namespace

void add_inspect_command(config::CommandLine& line) {
  config::Command& command = line.command("inspect", "show the contents of a data set");
  const auto config = command.settings<data_prep::InspectConfig>("inspect");
  command.example("trireme-data inspect data/train --json")
      .example("trireme-data inspect data/sft --line 0 --json")
      .run([config] {
        print(describe(*config));
        return kExitDone;
      });
}

void add_verify_command(config::CommandLine& line) {
  config::Command& command = line.command(
      "verify", "check every byte of a data set; exit code 3 with the damaged file and position");
  const auto config = command.settings<data_prep::VerifyConfig>("verify");
  command.example("trireme-data verify data/train").run([config] {
    const data::TokenSet set = data::TokenSet::open(config->folder);
    set.verify(config->fast);
    print(formatted("{}: good, {}, {} tokens{}", config->folder, counted(set.num_shards(), "shard"),
                    set.num_tokens(), config->fast ? " (tokens not read)\n" : "\n"));
    return kExitDone;
  });
}

}  // namespace trireme
