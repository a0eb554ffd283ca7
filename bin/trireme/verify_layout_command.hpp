#pragma once
#include <memory>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme {

/// `trireme verify-layout`: whether a layout trains as one process does, on this machine.
class VerifyLayoutCommand {
 public:
  VerifyLayoutCommand(CommandLine& line, Launch& launch);
  VerifyLayoutCommand(const VerifyLayoutCommand&) = delete;
  VerifyLayoutCommand& operator=(const VerifyLayoutCommand&) = delete;

 private:
  void complete(ConfigSet& keys);
  int run();
  /// All ranks are threads of this process.
  [[nodiscard]] LayoutVerdict verify_on_threads(int ranks) const;
  void print_verdict(const LayoutVerdict& verdict, int ranks, const std::string& backend,
                     at::Device device) const;

  Launch& launch_;
  RunConfig config_;
  std::unique_ptr<ConfigSet> keys_;
  std::int64_t ranks_ = 0;
  std::int64_t steps_ = 5;
  bool json_ = false;
};

}  // namespace trireme
