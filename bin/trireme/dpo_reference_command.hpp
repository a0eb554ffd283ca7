#pragma once
#include <string>

#include "comm/launch.hpp"
#include "config/command_line.hpp"

namespace trireme {

/// `trireme dpo-reference`: what a model says of every pair of a set, once for many epochs.
class DpoReferenceCommand {
 public:
  DpoReferenceCommand(CommandLine& line, Launch& launch);
  DpoReferenceCommand(const DpoReferenceCommand&) = delete;
  DpoReferenceCommand& operator=(const DpoReferenceCommand&) = delete;

 private:
  int run();

  Launch& launch_;
  std::string init_;
  std::string data_;
  std::string output_;
  std::int64_t batch_ = 4;
  std::int64_t seq_len_ = 0;
  std::string device_ = "auto";
  std::string precision_ = "fp32";
  bool allow_other_template_ = false;
};

}  // namespace trireme
