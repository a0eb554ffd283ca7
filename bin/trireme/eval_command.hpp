#pragma once
#include <string>

#include "comm/launch.hpp"
#include "config/command_line.hpp"
#include "generate/load_model.hpp"
#include "train/eval/set_scores.hpp"

namespace trireme {

/// `trireme eval`: loss of a token set, or multiple choice.
class EvalCommand {
 public:
  EvalCommand(CommandLine& line, Launch& launch);
  EvalCommand(const EvalCommand&) = delete;
  EvalCommand& operator=(const EvalCommand&) = delete;

 private:
  void check() const;
  int run();
  [[nodiscard]] std::string of_set(const std::vector<SequenceScore>& scores) const;
  [[nodiscard]] std::string of_choices(const std::vector<ChoiceItem>& items,
                                       const std::vector<ChoiceResult>& results) const;

  Launch& launch_;
  ModelOptions model_;
  std::string data_;
  std::string choices_;
  std::string predictions_;
  std::int64_t batch_ = 8;
  std::int64_t seq_len_ = 0;
  bool json_ = false;
  bool allow_other_template_ = false;
};

}  // namespace trireme
