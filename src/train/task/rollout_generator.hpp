#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "train/rl/answers.hpp"
#include "train/rl/prompts.hpp"
#include "train/rl/whole_model.hpp"
#include "train/task/rollout_ranks.hpp"
#include "train/task/sample_source.hpp"

namespace trireme::train {

/// Generates answers with the current weights, and scores them. If the layout divides the model,
/// each rank first copies the whole model (WholeModel). All functions are collective over the
/// world.
class RolloutGenerator {
 public:
  /// All arguments must outlive this object. Throws on all ranks if a reward model or a tool is
  /// unfit.
  RolloutGenerator(const RlConfig& config, const SourceContext& context, const RolloutRanks& ranks,
                   const AnswerTokens& tokens);

  /// Generates and scores the answers to the prompts with these indices, which belong to the group
  /// of this rank. Returns whole groups of answers in the order of the prompts. `step` is the
  /// number of the next update. Returns nullopt on all ranks if `is_stopped` returned true on a rank.
  std::optional<std::vector<Rollout>> generate(std::span<const std::int64_t> prompts,
                                               std::int64_t step,
                                               const std::function<bool()>& is_stopped);

  /// Returns the time of the last generate() without the rewards, in seconds.
  [[nodiscard]] double seconds() const { return seconds_; }

  /// Generates one greedy answer and rl.group sampled answers for each prompt of the validation.
  /// `is_stopped` as in generate().
  [[nodiscard]] GeneratedValidation validate(std::int64_t step,
                                             const std::function<bool()>& is_stopped);

 private:
  void copy_weights();
  [[nodiscard]] GenerationSetup setup_of(std::int64_t weights_version,
                                         const std::function<bool()>& is_stopped) const;
  [[nodiscard]] bool is_true_on_any_rank(bool value) const;

  const RlConfig& config_;
  const SourceContext& context_;
  const RolloutRanks& ranks_;
  const AnswerTokens& tokens_;
  RlPromptReader prompts_;
  RewardTerms rewards_;
  std::unique_ptr<Agent> agent_;       // null: answers call no tools
  std::unique_ptr<WholeModel> whole_;  // null before the first use, or each rank has all weights
  double seconds_ = 0;
};

}  // namespace trireme::train
