#include <limits>

#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/inspect/inspect.hpp"
#include "data_prep/inspect/inspect_document.hpp"

namespace trireme {
namespace {

std::string describe(const InspectConfig& config) {
  const TokenSet set = TokenSet::open(config.folder);
  if (config.line == InspectConfig::kNone && config.sample == InspectConfig::kNone)
    return config.json ? inspect_json(set) : inspect_text(set);
  const DocumentPlace place = config.line != InspectConfig::kNone
                                  ? find_line(set, static_cast<std::uint64_t>(config.line))
                                  : find_document(set, static_cast<std::uint64_t>(config.sample));
  return config.json ? document_json(set, place)
                     : document_text(set, place, std::numeric_limits<std::size_t>::max());
}

}  // namespace

void add_inspect_command(CommandLine& line) {
  Command& command = line.command("inspect", "show the contents of a data set");
  const auto config = command.settings<InspectConfig>("inspect");
  command.example("trireme-data inspect data/train --json")
      .example("trireme-data inspect data/sft --line 0 --json")
      .run([config] {
        print(describe(*config));
        return kExitDone;
      });
}

void add_verify_command(CommandLine& line) {
  Command& command = line.command(
      "verify", "check every byte of a data set; exit code 3 with the damaged file and position");
  const auto config = command.settings<VerifyConfig>("verify");
  command.example("trireme-data verify data/train").run([config] {
    const TokenSet set = TokenSet::open(config->folder);
    set.verify(config->fast);
    print(formatted("{}: good, {} shards, {} tokens{}", config->folder, set.num_shards(),
                    set.num_tokens(), config->fast ? " (tokens not read)\n" : "\n"));
    return kExitDone;
  });
}

}  // namespace trireme
