#pragma once
#include <string>

#include "config/command_line.hpp"
#include "generate/load_model.hpp"
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

  ModelOptions model_;
  GenerationLoad load_;
  std::int64_t repeats_ = 3;
  bool json_ = false;
};

}  // namespace trireme
