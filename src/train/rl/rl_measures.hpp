#pragma once
#include <map>
#include <span>
#include <string>

#include "comm/communicator.hpp"
#include "core/measures.hpp"
#include "train/rl/rollout.hpp"

namespace trireme::train {

/// Measures of generated answers: reward, reward_<term>, reward_std (mean over groups),
/// zero_std_groups, completion_tokens_mean, truncated_fraction, rollout_s, rollout_tokens_per_s,
/// and update_s, the time of one update. A mean is one sum over all ranks, divided once.
class RlMeasures {
 public:
  /// `measures` must outlive this object.
  RlMeasures(const RlConfig& config, Measures& measures);

  /// Records the answers that this rank counts. Collective.
  void record(comm::Communicator& world, std::span<const Rollout> rollouts,
              const AdvantageTotals& advantages, double rollout_s);

  /// Records the sum of the value losses of this rank, and the number of their targets (ppo).
  void record_value_loss(double sum, double targets) {
    measures_.record(value_loss_, sum, targets);
  }

  void record_update(double seconds) { measures_.record(update_s_, seconds); }

 private:
  Measures& measures_;
  std::int64_t group_;
  bool generates_;
  Measures::Id reward_, reward_std_, zero_std_groups_, completion_tokens_, truncated_;
  Measures::Id update_s_;
  Measures::Id value_loss_ = 0;
  Measures::Id rollout_s_ = 0;
  Measures::Id tokens_per_s_ = 0;
  std::map<std::string, Measures::Id> terms_;
};

}  // namespace trireme::train
