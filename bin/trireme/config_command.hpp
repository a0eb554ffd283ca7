#pragma once
#include <memory>

#include "config/command_line.hpp"
#include "train/config/config.hpp"

namespace trireme {

/// `trireme config show`: the resolved configuration of a training run, and who set each key.
class ConfigCommand {
 public:
  explicit ConfigCommand(CommandLine& line);
  ConfigCommand(const ConfigCommand&) = delete;
  ConfigCommand& operator=(const ConfigCommand&) = delete;

 private:
  RunConfig config_;
  std::unique_ptr<ConfigSet> keys_;
  bool origin_ = false;
  bool toml_ = false;
};

}  // namespace trireme
