#pragma once
#include "checkpoint/load/load.hpp"
#include "train/start/frozen_start.hpp"
#include "train/start/run_model.hpp"
#include "train/start/run_request.hpp"

namespace trireme::train {

/// Subdirectory of the run directory for the critic's first weights, if they are not a checkpoint of
/// whole weights. It is removed after they are loaded.
inline constexpr const char* kConvertedCritic = "critic-init";

/// Returns true if the checkpoint holds a critic.
[[nodiscard]] bool holds_critic(const checkpoint::Checkpoint& checkpoint);

/// Sets the first weights of the critic: those of CriticSpec::init, or those of `start`, the whole
/// model that the run starts from. A value head that they lack keeps its initial values. Throws
/// Error(usage) if the critic would have another architecture or tokenizer than the policy.
/// Collective.
void load_critic(const RunRequest& run, const RunData& data,
                 const std::optional<checkpoint::Checkpoint>& start, Critic& critic,
                 const parallel::Mesh& mesh);

}  // namespace trireme::train
