#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "train/config/config.hpp"
#include "train/control/launch.hpp"
#include "train/plan/plan_run.hpp"
#include "train/run/run_start.hpp"
#include "train/task/task.hpp"

namespace trireme {

/// `trireme TASK`. Every rank parses, with all others: what a run starts from is read together, and
/// a wrong command line is one message.
class TrainCommand {
 public:
  /// `program`: as the user called it.
  TrainCommand(CommandLine& line, Launch& launch, std::string program, const TaskRow& task);
  TrainCommand(const TrainCommand&) = delete;
  TrainCommand& operator=(const TrainCommand&) = delete;

  /// True if these arguments start a training command.
  static bool is_chosen(int argc, const char* const* argv);

  /// train.device of the run that was parsed is cpu.
  [[nodiscard]] bool is_on_cpu() const { return config_.train.device == "cpu"; }

  /// What the run that was parsed would take on other ranks (plan_run.hpp).
  [[nodiscard]] RunPlan plan(int ranks, bool on_gpu);

 private:
  /// Once options, files and environment are read: the start of the run, and all checks.
  void complete(ConfigSet& keys);
  void take_init(ConfigSet& keys) const;
  /// Returns true if the task trains on token sets that may hold chats.
  [[nodiscard]] bool takes_chats() const;
  int train();
  int train_watched(const std::string& network);

  Launch& launch_;
  std::string program_;
  std::string_view name_;
  std::unique_ptr<Task> task_;
  RunConfig config_;
  std::string run_;
  std::vector<std::string> init_;  // --init, at most one
  bool allow_other_template_ = false;
  std::int64_t debugged_rank_ = -1;
  bool allow_missing_markers_ = false;
  RunStart start_;
  std::unique_ptr<ConfigSet> keys_;
  std::unique_ptr<RankWatch> watch_;  // from train() to the end of the process
};

}  // namespace trireme
