#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "generate/load/load_model.hpp"

namespace trireme::train {

/// A reward model that `trireme reward` has trained. Each rank holds the whole model. Not
/// thread-safe.
class RewardModel {
 public:
  /// Loads a run or a checkpoint, like generate::load_model. Throws Error(usage) if it has no
  /// reward head.
  explicit RewardModel(const generate::ModelOptions& options, int local_rank = 0,
                       int local_size = 1);

  /// Returns the reward of each sequence: a prompt and an answer with its end token. The reward is
  /// read at the last token. Throws Error(usage) for an empty sequence, for one that is longer than
  /// the model's max_seq_len, and for an id outside of the vocabulary.
  [[nodiscard]] std::vector<double> score(
      std::span<const std::vector<std::uint32_t>> sequences) const;

  [[nodiscard]] generate::LoadedModel& model() const { return *model_; }

  /// Returns the weight of the head, [1, D].
  [[nodiscard]] const at::Tensor& head() const { return head_; }

 private:
  /// Appends the rewards of sequences that are computed in one pass.
  void score_pass(std::span<const std::vector<std::uint32_t>> sequences,
                  std::vector<double>& rewards) const;

  std::unique_ptr<generate::LoadedModel> model_;
  at::Tensor head_;
};

}  // namespace trireme::train
