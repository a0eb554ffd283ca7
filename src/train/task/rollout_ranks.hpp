#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "train/config/config.hpp"
#include "train/rl/rl_config.hpp"
#include "train/rl/rollout.hpp"

/// Functions that combine the answers of all ranks. All of them are collective over `world`.
namespace trireme::train {

/// Returns the rewards of the answers of all ranks, rank by rank. All ranks have equally many.
std::vector<double> gather_rewards(comm::Communicator& world, std::span<const Rollout> rollouts);

struct RolloutFile {
  std::filesystem::path directory;  // RUN/rollouts
  std::int64_t step = 0;            // step of the update that the answers are for
  std::size_t part = 0;             // number of adjacent answers of one rank
  std::int64_t keep = 0;            // number of files to keep; 0: all
};

/// Writes step-NNNNNNNNN.jsonl: `part` answers of each rank in turn, which is the order of the
/// prompts.
void publish_rollouts(comm::Communicator& world, const RolloutFile& file,
                      std::span<const Rollout> rollouts);

/// Returns the totals of an update with these answers of each rank. Throws Error(data) if no answer
/// has a token to train.
UpdateTotals sum_totals(comm::Communicator& world, const RlConfig& config, const TrainConfig& train,
                        std::int64_t step, std::span<const Rollout> rollouts);

}  // namespace trireme::train
