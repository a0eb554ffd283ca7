#include <limits>

#include "bin/trireme_data/commands.hpp"
#include "core/process/run_main.hpp"
#include "data_prep/inspect/inspect.hpp"
#include "data_prep/inspect/inspect_config.hpp"
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

}  // namespace trireme
