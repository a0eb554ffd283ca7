#pragma once
#include <string>

#include "config/command_line.hpp"
#include "pipeline/named.hpp"
#include "pipeline/simulate.hpp"

namespace trireme {

/// `trireme plan schedule`: the order of a pipeline's passes, proved, timed and drawn.
class ScheduleCommand {
 public:
  explicit ScheduleCommand(CommandLine& line);
  ScheduleCommand(const ScheduleCommand&) = delete;
  ScheduleCommand& operator=(const ScheduleCommand&) = delete;

 private:
  int run() const;
  [[nodiscard]] pipeline::Timing timing() const;

  std::string schedule_ = "1f1b";
  std::int64_t ranks_ = 0;
  std::int64_t virtual_stages_ = 0;
  std::int64_t micro_batches_ = 0;
  std::int64_t in_flight_ = 0;
  std::string times_ = "1,1,1,0";
  std::string draw_;
  bool json_ = false;
};

}  // namespace trireme
