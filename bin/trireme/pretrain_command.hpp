#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "train/config/config.hpp"
#include "train/control/launch.hpp"
#include "train/run/run_start.hpp"

namespace trireme {

/// `trireme pretrain`. Every rank parses, with all others: what a run starts from is read together,
/// and a wrong command line is one message.
class PretrainCommand {
 public:
  /// `program`: as the user called it.
  PretrainCommand(CommandLine& line, Launch& launch, std::string program);
  PretrainCommand(const PretrainCommand&) = delete;
  PretrainCommand& operator=(const PretrainCommand&) = delete;

  /// True if these arguments start a training command.
  static bool is_chosen(int argc, const char* const* argv);

 private:
  /// Once options, files and environment are read: the start of the run, and all checks.
  void complete(ConfigSet& keys);
  void take_init(ConfigSet& keys) const;
  int train();

  Launch& launch_;
  std::string program_;
  RunConfig config_;
  std::string run_;
  std::vector<std::string> init_;  // --init, at most one
  RunStart start_;
  std::unique_ptr<ConfigSet> keys_;
  std::unique_ptr<RankWatch> watch_;  // from train() to the end of the process
};

}  // namespace trireme
