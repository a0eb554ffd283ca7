#pragma once
#include <memory>
#include <vector>

#include "config/config_set.hpp"
#include "train/config/config.hpp"
#include "train/start/run_start.hpp"
#include "train/task/task.hpp"

namespace trireme::train {

/// Returns all sections of a training run. `section` holds the fields of the task, in last place.
std::unique_ptr<config::ConfigSet> make_run_keys(RunConfig& config,
                                                 const std::vector<Field>& section = {});

/// Completes the keys after all sources (files, environment, options, start) are read: applies the
/// model preset to model.* keys that are not set, and checks every value.
void finish_run_keys(RunConfig& config, config::ConfigSet& keys, const RunStart& start = {});

/// Does the same for a run of `task` with the command `name`: applies its defaults and checks, too.
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
