#pragma once
#include <string>

#include "config/command_line.hpp"
#include "serve/generate.hpp"

namespace trireme {

/// `trireme generate`: continues a prompt with a checkpoint's model; only the new text goes to
/// standard output.
class GenerateCommand {
 public:
  explicit GenerateCommand(CommandLine& line);
  GenerateCommand(const GenerateCommand&) = delete;
  GenerateCommand& operator=(const GenerateCommand&) = delete;

 private:
  int run();

  std::string checkpoint_;
  std::string prompt_;
  bool allow_older_ = false;
  std::string device_ = "auto";
  std::string precision_ = "fp32";
  GenerateOptions options_;
};

}  // namespace trireme
