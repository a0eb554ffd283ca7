#pragma once
#include <memory>

#include "train/rl/rl_config.hpp"
#include "train/task/sample_source.hpp"

namespace trireme::train {

/// Returns the source that generates the answers of each update with the current weights, or reads
/// them from rl.replay, computes their rewards and advantages, and publishes them in RUN/rollouts.
/// train.global_batch and train.micro_batch count prompts; a group of answers stays on one rank.
std::unique_ptr<SampleSource> make_rollout_source(const RlConfig& config,
                                                  const SourceContext& context);

}  // namespace trireme::train
