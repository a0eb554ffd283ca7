#pragma once
#include <memory>
#include <vector>

#include "config/command_line.hpp"
#include "train/config/config.hpp"
#include "train/task/task.hpp"

namespace trireme {

/// `trireme config show`: the resolved configuration of a training run, with the sections
/// of all tasks, and who set each key.
class ConfigCommand {
 public:
  explicit ConfigCommand(CommandLine& line);
  ConfigCommand(const ConfigCommand&) = delete;
  ConfigCommand& operator=(const ConfigCommand&) = delete;

 private:
  void check(ConfigSet& keys);

  std::vector<std::unique_ptr<Task>> tasks_;
  RunConfig config_;
  std::unique_ptr<ConfigSet> keys_;
  bool origin_ = false;
  bool toml_ = false;
};

}  // namespace trireme
