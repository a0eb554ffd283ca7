#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reward/tool_program.hpp"
#include "reward/tool_table.hpp"
#include "text/chat/tool_turns.hpp"
#include "train/rl/answer_tokens.hpp"
#include "train/rl/rollout.hpp"

namespace trireme::train {

/// Answers the calls of tools in generated answers, and appends the results to their conversations.
///
/// The text of an answer is data: its calls are JSON for rl.tools or rl.tool_command, and no text
/// becomes code. Only one thread may use an object.
class Agent {
 public:
  /// Reads rl.tools. Throws Error(usage) if the chat format cannot append results, and Error(data)
  /// for an invalid table.
  Agent(const RlConfig& config, const AnswerTokens& tokens);

  /// Answers the calls in the last answers of `rollouts`, in order. A conversation with results gets
  /// their tokens and the header of the next answer, all without loss. An answer with calls becomes
  /// unfinished if `is_last`, or if there is no space for the results and one more token; then it is
  /// truncated too. Returns the indices of `open` for which another answer must be generated.
  /// Throws like ToolProgram.
  std::vector<std::size_t> continue_with_results(std::vector<Rollout>& rollouts,
                                                 std::span<const std::size_t> open, bool is_last);

 private:
  [[nodiscard]] std::vector<std::string> answer(const std::vector<Json>& calls);

  const AnswerTokens& tokens_;
  text::ToolTurns turns_;
  std::int64_t max_total_tokens_;
  std::optional<reward::ToolTable> table_;
  std::optional<reward::ToolProgram> program_;
};

}  // namespace trireme::train
