#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "job/doctor/findings.hpp"
#include "job/doctor/node_speeds.hpp"

namespace trireme {

/// `trireme doctor`: what is wrong with the place where ranks run, alone or on an allocation.
class DoctorCommand {
 public:
  DoctorCommand(CommandLine& line, Launch& launch);
  DoctorCommand(const DoctorCommand&) = delete;
  DoctorCommand& operator=(const DoctorCommand&) = delete;

 private:
  int run();
  [[nodiscard]] std::vector<RankFacts> gather() const;
  void show(const std::vector<Finding>& findings, const SpeedReport& speeds,
            const std::vector<RankFacts>& ranks) const;

  Launch& launch_;
  std::string run_;
  std::string data_;
  bool json_ = false;
};

}  // namespace trireme
