#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "train/config/config.hpp"
#include "train/control/launch.hpp"
#include "train/start/run_start.hpp"
#include "train/task/task.hpp"

namespace trireme {

/// The command line of a training command; `submit` plans the run from it.
struct TrainSettings {
  std::string program;
  std::string_view name;  // the task's
  std::unique_ptr<train::Task> task;
  train::RunConfig config;
  std::string run;
  std::vector<std::string> init;  // --init, at most one
  bool allow_other_template = false;
  bool allow_missing_markers = false;
  std::int64_t debugged_rank = -1;
  train::RunStart start;
  std::unique_ptr<config::ConfigSet> keys;  // keys of config and task
  std::unique_ptr<train::RankWatch>
      watch;  // lives from the start of training to the end of the process
};

/// Declares `trireme TASK`. All ranks parse together: they read the start of the run collectively,
/// and a wrong command line gives one message. `program` is argv[0]. Returns the settings, which
/// the parser fills in.
std::shared_ptr<TrainSettings> add_train_command(config::CommandLine& line, comm::Launch& launch,
                                                 const std::string& program,
                                                 const train::TaskRow& task);

/// Returns true if these arguments start a training command.
bool is_training_command(int argc, const char* const* argv);

}  // namespace trireme
