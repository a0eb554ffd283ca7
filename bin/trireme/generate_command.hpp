#pragma once
#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "serve/generate.hpp"
#include "serve/prompts.hpp"

namespace trireme {

/// `trireme generate`: continues prompts with a checkpoint's model, each as if it were alone; only
/// the new text goes to standard output, or with --json a line {"index", "text", "ids"} each.
class GenerateCommand {
 public:
  explicit GenerateCommand(CommandLine& line);
  GenerateCommand(const GenerateCommand&) = delete;
  GenerateCommand& operator=(const GenerateCommand&) = delete;

 private:
  int run();
  [[nodiscard]] std::vector<Prompt> prompts() const;
  void continue_prompt(const struct LoadedModel& model, std::size_t index,
                       const std::vector<std::uint32_t>& ids) const;

  std::string checkpoint_;
  bool allow_older_ = false;
  std::vector<std::string> prompt_;
  std::string prompts_file_;
  bool json_ = false;
  std::string device_ = "auto";
  std::string precision_ = "fp32";
  GenerateOptions options_;
};

}  // namespace trireme
