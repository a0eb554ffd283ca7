#include "bin/trireme_data/commands.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/inspect/inspect_config.hpp"

namespace trireme {

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
