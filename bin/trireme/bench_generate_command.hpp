#pragma once
#include <string>

#include "config/command_line.hpp"
#include "generate/measure.hpp"

namespace trireme {

/// `trireme bench generate`: how fast a model reads prompts and writes texts here, beside what its
/// memory allows.
class BenchGenerateCommand {
 public:
  explicit BenchGenerateCommand(CommandLine& line);
  BenchGenerateCommand(const BenchGenerateCommand&) = delete;
  BenchGenerateCommand& operator=(const BenchGenerateCommand&) = delete;

 private:
  int run();

  std::string checkpoint_;
  GenerationLoad load_;
  std::int64_t repeats_ = 3;
  std::int64_t threads_ = 0;
  std::string device_ = "auto";
  std::string precision_ = "fp32";
  bool json_ = false;
};

}  // namespace trireme
