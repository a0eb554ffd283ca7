#include "bin/trireme/config_command.hpp"

#include "core/process/run_main.hpp"
#include "train/run/run_keys.hpp"

namespace trireme {

ConfigCommand::ConfigCommand(CommandLine& line) {
  std::vector<Field> sections;
  for (const TaskRow& row : task_rows()) {
    tasks_.push_back(row.make());
    for (const Field& field : tasks_.back()->section()) sections.push_back(field);
  }
  keys_ = make_run_keys(config_, sections);
  line.group("config", "configuration of a training run");
  line.command("config show", "the configuration a run would have")
      .flag("--origin", origin_,
            "also who set each key: default, preset, file and line, environment or option")
      .flag("--toml", toml_, "as a file that --config reads")
      .config(*keys_, [this](ConfigSet& keys) { check(keys); })
      .example("trireme config show --config run.toml --optim.lr 1e-3 --origin")
      .run([this] {
        print(toml_ ? keys_->to_toml() : keys_->show(origin_));
        return kExitDone;
      });
}

void ConfigCommand::check(ConfigSet& keys) {
  finish_run_keys(config_, keys);
  for (const auto& task : tasks_) task->check(keys.problems());
}

}  // namespace trireme
