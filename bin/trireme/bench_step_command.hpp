#pragma once
#include <memory>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "train/verify/bench_step.hpp"

namespace trireme {

/// `trireme bench step`: what a step of a layout takes on this machine, and whether ranks send what
/// the formulas say.
class BenchStepCommand {
 public:
  /// `activity`: of the ranks of `launch`.
  BenchStepCommand(CommandLine& line, Launch& launch, Activity& activity);
  BenchStepCommand(const BenchStepCommand&) = delete;
  BenchStepCommand& operator=(const BenchStepCommand&) = delete;

 private:
  void complete(ConfigSet& keys);
  /// What a run finds out when the ranks are up: shape, size of the update, device. Throws
  /// Error(usage) for what `ranks` cannot train, Error(resource) where it has no room.
  void settle(const LaunchInfo& launch, int ranks);
  void warn_of_idle_keys() const;
  int run();
  [[nodiscard]] std::string text(const StepFigures& figures) const;

  Launch& launch_;
  Activity& activity_;
  StepBench bench_;
  std::unique_ptr<ConfigSet> keys_;
  bool json_ = false;
};

}  // namespace trireme
