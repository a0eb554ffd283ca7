#include "bin/trireme/commands.hpp"
#include "core/process/run_main.hpp"
#include "train/run/run_keys.hpp"

namespace trireme {
namespace {

/// The keys of all tasks.
struct ShownConfig {
  std::vector<std::unique_ptr<Task>> tasks;
  RunConfig config;
  std::unique_ptr<ConfigSet> keys;
  bool origin = false;
  bool toml = false;
};

}  // namespace

void add_config_show_command(CommandLine& line) {
  const auto settings = std::make_shared<ShownConfig>();
  std::vector<Field> sections;
  for (const TaskRow& row : task_rows()) {
    settings->tasks.push_back(row.make());
    for (const Field& field : settings->tasks.back()->section()) sections.push_back(field);
  }
  settings->keys = make_run_keys(settings->config, sections);
  line.group("config", "configuration of a training run");
  line.command("config show", "the configuration a run would have")
      .flag("--origin", settings->origin,
            "also who set each key: default, preset, file and line, environment or option")
      .flag("--toml", settings->toml, "as a file that --config reads")
      .config(*settings->keys,
              [settings](ConfigSet& keys) {
                finish_run_keys(settings->config, keys);
                for (const auto& task : settings->tasks) task->check(keys.problems());
              })
      .example("trireme config show --config run.toml --optim.lr 1e-3 --origin")
      .run([settings] {
        print(settings->toml ? settings->keys->to_toml() : settings->keys->show(settings->origin));
        return kExitDone;
      });
}

}  // namespace trireme
