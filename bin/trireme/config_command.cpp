#include "bin/trireme/config_command.hpp"

#include "core/process/run_main.hpp"
#include "train/run/run_keys.hpp"

namespace trireme {

ConfigCommand::ConfigCommand(CommandLine& line) : keys_(make_run_keys(config_)) {
  line.group("config", "configuration of a training run");
  line.command("config show", "the configuration a run would have")
      .flag("--origin", origin_,
            "also who set each key: default, preset, file and line, environment or option")
      .flag("--toml", toml_, "as a file that --config reads")
      .config(*keys_, [this](ConfigSet& keys) { finish_run_keys(config_, keys); })
      .example("trireme config show --config run.toml --optim.lr 1e-3 --origin")
      .run([this] {
        print(toml_ ? keys_->to_toml() : keys_->show(origin_));
        return kExitDone;
      });
}

}  // namespace trireme
