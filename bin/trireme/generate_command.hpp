#pragma once
#include <memory>
#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "generate/answers.hpp"
#include "generate/load_model.hpp"
#include "generate/prompts.hpp"

namespace trireme {

/// `trireme generate`: continues prompts with a checkpoint's model, several at once, each as if it were
/// alone; only the new text goes to standard output, or with --json a line for each prompt, in order.
class GenerateCommand {
 public:
  explicit GenerateCommand(CommandLine& line);
  GenerateCommand(const GenerateCommand&) = delete;
  GenerateCommand& operator=(const GenerateCommand&) = delete;

 private:
  int run();
  void check() const;
  [[nodiscard]] std::vector<Prompt> prompts() const;
  /// Throws Error(usage) if a chat format is given and no prompt is a chat.
  void check_chat_template(const std::vector<Prompt>& prompts) const;
  /// The requests, all at once: a bad prompt ends it before hours.
  [[nodiscard]] std::vector<Request> requests(const LoadedModel& model,
                                              const std::vector<Prompt>& prompts) const;
  [[nodiscard]] Request request_of(const LoadedModel& model, const Prompt& prompt) const;
  [[nodiscard]] std::string result_line(std::size_t index, std::size_t prompt_tokens,
                                      const Answer& answer) const;

  ModelOptions model_;
  std::vector<std::string> prompt_;
  std::string prompts_file_;
  bool chat_ = false;
  bool json_ = false;
  std::vector<std::string> stop_;
  std::int64_t max_tokens_ = 128;
  bool ignore_eos_ = false;
  SamplingConfig sampling_;
  EngineConfig engine_;
};

}  // namespace trireme
