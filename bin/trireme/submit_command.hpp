#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "job/submit/submission.hpp"
#include "train/plan/plan_run.hpp"

namespace trireme {

/// `trireme submit ... -- TASK ARGUMENTS`: a training command as a job, once all that can be known
/// before it starts is well.
class SubmitCommand {
 public:
  /// `program`: as the user called it.
  SubmitCommand(CommandLine& line, Launch& launch, std::string program);
  SubmitCommand(const SubmitCommand&) = delete;
  SubmitCommand& operator=(const SubmitCommand&) = delete;

 private:
  int run();
  void take_words();
  void plan(NodeKind& kind);
  void check_queue();
  void check_disk();
  void report(const std::vector<std::string>& words, const std::string& job) const;

  Launch& launch_;
  std::string program_;
  SubmitRequest request_;
  std::vector<std::string> words_;  // TASK ARGUMENTS
  bool dry_run_ = false;
  bool json_ = false;
  RunPlan plan_;
  std::vector<SubmitProblem> problems_;
};

}  // namespace trireme
