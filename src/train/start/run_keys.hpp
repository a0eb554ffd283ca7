#pragma once
#include <memory>
#include <vector>

#include "config/config_set.hpp"
#include "train/config/config.hpp"
#include "train/start/run_start.hpp"
#include "train/task/task.hpp"

namespace trireme {

/// All sections of a training run; the last one is its task's own.
std::unique_ptr<ConfigSet> make_run_keys(RunConfig& config, const std::vector<Field>& section = {});

/// Once all sources are read, the start of the run among them: fills model.* from its preset where
/// nothing else set them, and checks every value.
void finish_run_keys(RunConfig& config, ConfigSet& keys, const RunStart& start = {});

/// The same of a run of `task`, the command `name`: with its own defaults and checks.
void finish_task_keys(Task& task, std::string_view name, RunConfig& config, ConfigSet& keys,
                      const RunStart& start);

/// The keys of a run of any task: the sections of all tasks.
struct KeysOfAllTasks {
  KeysOfAllTasks();

  std::vector<std::unique_ptr<Task>> tasks;
  RunConfig config;
  std::unique_ptr<ConfigSet> keys;
};

}  // namespace trireme
