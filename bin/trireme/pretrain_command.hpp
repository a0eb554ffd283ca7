#pragma once
#include <memory>
#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "train/config/config.hpp"
#include "train/run/run_start.hpp"

namespace trireme {

/// `trireme pretrain`: declares the command, and runs it on all ranks of the launch.
///
/// Parsing is done by every rank, so the ranks come up first: a wrong command line is then one
/// message, not one a rank.
class PretrainCommand {
 public:
  explicit PretrainCommand(CommandLine& line);
  ~PretrainCommand();
  PretrainCommand(const PretrainCommand&) = delete;
  PretrainCommand& operator=(const PretrainCommand&) = delete;

  /// True if these arguments start a training command, which runs on all ranks.
  static bool is_chosen(int argc, const char* const* argv);

  /// Starts MPI, parses, trains; returns the exit code of this rank.
  int run_on_ranks(CommandLine& line, int argc, char** argv);

 private:
  /// Once options, files and environment are read: the start of the run, and all checks.
  void complete(ConfigSet& keys);
  void take_init(ConfigSet& keys) const;
  int execute(class Communicator& world, const struct LaunchInfo& launch);
  /// A peer is lost: says so in the run folder (leave_run.hpp) and ends this process at once (on
  /// the heartbeat's thread).
  [[noreturn]] void leave(const struct PeerLoss& loss, const class Activity& activity,
                          const struct LaunchInfo& launch) const;

  RunConfig config_;
  std::string run_;
  std::vector<std::string> init_;  // --init, at most one
  RunStart start_;
  std::string program_ = "trireme";
  class Communicator* world_ = nullptr;  // while the command line is read
  std::unique_ptr<ConfigSet> keys_;
  std::unique_ptr<class Heartbeat> heartbeat_;
  bool parsed_ = false;  // a run was asked for, not help
};

}  // namespace trireme
