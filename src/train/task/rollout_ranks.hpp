#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/mesh.hpp"
#include "train/config/config.hpp"
#include "train/rl/answers.hpp"
#include "train/rl/rl_config.hpp"
#include "train/rl/rollout.hpp"

namespace trireme::train {

/// The ranks of a run. All ranks with the same data-parallel rank form a group, and train on the
/// same answers. Each rank of a group generates a part of them. All functions but share() are
/// collective over the world.
class RolloutRanks {
 public:
  /// `world` (all ranks, with host memory) must outlive this object. Collective.
  RolloutRanks(comm::Communicator& world, const parallel::Mesh& mesh);

  [[nodiscard]] comm::Communicator& world() const { return world_; }

  [[nodiscard]] int data_rank() const { return data_rank_; }

  [[nodiscard]] int data_ranks() const { return data_ranks_; }

  /// Returns true on the rank that counts the answers of its group.
  [[nodiscard]] bool is_first() const { return group_ == nullptr || group_->rank() == 0; }

  /// Returns the part of `answers` answers of the group that this rank generates.
  [[nodiscard]] AnswerRange share(std::size_t answers) const;

  /// Returns the answers of all ranks of the group, rank by rank. `num_ids`: ids of the tokenizer.
  [[nodiscard]] std::vector<Rollout> exchange(std::vector<Rollout> own, std::int64_t num_ids) const;

  /// Adds the values [N] fp64 of all ranks of the group.
  void add_up(const at::Tensor& values) const;

  /// Returns the sum of a value that is equal on all ranks of a group, over the groups.
  [[nodiscard]] double sum_of_groups(double value, const char* tag) const;

  /// Returns the rewards of the answers of all groups. All groups have equally many.
  [[nodiscard]] std::vector<double> gather_rewards(std::span<const Rollout> rollouts) const;

 private:
  comm::Communicator& world_;
  int data_rank_;
  int data_ranks_;
  std::unique_ptr<comm::Communicator> group_;  // null: one rank
};

struct RolloutFile {
  std::filesystem::path directory;  // RUN/rollouts
  std::int64_t step = 0;            // step of the update that the answers are for
  std::size_t part = 0;             // number of adjacent answers of one group
};

/// Writes step-NNNNNNNNN.jsonl: `part` answers of each group in turn, which is the order of the
/// prompts. Collective over the world.
void publish_rollouts(const RolloutRanks& ranks, const RolloutFile& file,
                      std::span<const Rollout> rollouts);

/// Returns the number of tokens of the rows of a micro-batch: that of its longest prompt with its
/// answer, rounded up to a multiple of what the layout divides between ranks.
std::int64_t row_tokens_of(const parallel::ParallelConfig& parallel,
                           std::span<const Rollout> rollouts);

/// Returns the totals of an update with these answers of each group. Throws Error(data) if no
/// answer has a token to train. Collective over the world.
UpdateTotals sum_totals(const RolloutRanks& ranks, const RlConfig& config,
                        const RunConfig& run_config, std::int64_t step,
                        std::span<const Rollout> rollouts);

}  // namespace trireme::train
