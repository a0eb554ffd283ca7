#pragma once
#include <memory>
#include <vector>

#include "config/config_set.hpp"
#include "train/config/config.hpp"
#include "train/start/run_start.hpp"
#include "train/task/task.hpp"

namespace trireme::train {

/// Returns the keys of all sections of a training run. `section` contains the keys of the task and
/// becomes the last section.
std::unique_ptr<config::ConfigSet> make_run_keys(RunConfig& config,
                                                 const std::vector<Field>& section = {});

/// Completes the keys after all sources (files, environment, options, start) are read: applies the
/// model preset to model.* keys that are not set, and checks every value.
void finish_run_keys(RunConfig& config, config::ConfigSet& keys, const RunStart& start = {});

/// Like finish_run_keys, for a run of `task` with the command `name`. Also applies the defaults and
/// the checks of the task.
void finish_task_keys(Task& task, std::string_view name, RunConfig& config, config::ConfigSet& keys,
                      const RunStart& start);

/// The keys of all tasks together.
struct AllTaskKeys {
  AllTaskKeys();

  std::vector<std::unique_ptr<Task>> tasks;
  RunConfig config;
  std::unique_ptr<config::ConfigSet> keys;
};

}  // namespace trireme::train
