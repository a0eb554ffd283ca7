#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/command_line.hpp"

namespace trireme {

/// `trireme job ...`: a run as a job of a scheduler. They need neither LibTorch nor the scheduler.
class JobCommands {
 public:
  explicit JobCommands(CommandLine& line);
  JobCommands(const JobCommands&) = delete;
  JobCommands& operator=(const JobCommands&) = delete;

 private:
  [[nodiscard]] int finish() const;
  [[nodiscard]] int watch() const;
  [[nodiscard]] int stacks() const;
  [[nodiscard]] int attach() const;

  std::string run_;
  std::int64_t srun_code_ = 0;
  std::string job_says_;
  std::string lost_nodes_;
  bool may_restart_ = false;
  bool in_chain_ = false;
  bool dry_run_ = false;
  bool once_ = false;
  bool json_ = false;
  std::int64_t rank_ = -1;
  std::int64_t attach_rank_ = 0;
  std::vector<std::string> debugger_arguments_;
};

}  // namespace trireme
