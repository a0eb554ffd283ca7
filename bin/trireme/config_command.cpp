#include "bin/trireme/commands.hpp"
#include "core/process/run_main.hpp"
#include "train/start/run_keys.hpp"
#include "train/start/run_length.hpp"

namespace trireme {
namespace {

struct ConfigShowSettings {
  train::AllTaskKeys all;
  bool origin = false;
  bool toml = false;
};

}  // namespace

void add_config_show_command(config::CommandLine& line) {
  const auto settings = std::make_shared<ConfigShowSettings>();
  train::AllTaskKeys& all = settings->all;
  line.group("config", "configuration of a training run");
  line.command(
          "config show",
          "show the resolved configuration of a command line (of a run: --config RUN/config.toml)")
      .flag(
          "--origin", settings->origin,
          "also show the source of each key: default, preset, file and line, environment or option")
      .flag("--toml", settings->toml, "print TOML that --config can read")
      .config(*all.keys,
              [&all](config::ConfigSet& keys) {
                train::finish_run_keys(all.config, keys);
                train::show_token_rule(all.config, keys);
                for (const auto& task : all.tasks) {
                  task->choose_defaults(keys);
                  task->check(keys.problems());
                }
              })
      .example("trireme config show --config run.toml --optim.lr 1e-3 --origin")
      .run([settings] {
        const config::ConfigSet& keys = *settings->all.keys;
        print(settings->toml ? keys.to_toml() : keys.show(settings->origin));
        return kExitDone;
      });
}

}  // namespace trireme
