#pragma once
#include "config/config_set.hpp"
#include "train/config/config.hpp"

/// The rules by which model.depth gives a new run its other keys. A rule sets a key unless a file,
/// the environment or the command line sets it. The origin of the key is the text of the rule,
/// which `trireme config show --origin` prints.
namespace trireme::train {

/// Sets the sizes of the model, and optim.name if the run has no start with a shape (`has_shape`).
/// Called after the preset was applied, and before the defaults of the optimizer.
/// `replaces_earlier`: as in ConfigSet::apply_preset.
void apply_depth(const RunConfig& config, config::ConfigSet& keys, bool has_shape,
                 bool replaces_earlier);

/// Sets the batch, the steps, and the rates and the weight decay of Muon. Called after the defaults
/// of the optimizer were applied. Does nothing if the model is invalid, which check() reports.
void apply_depth_training(const RunConfig& config, config::ConfigSet& keys);

/// Returns the steps of the decay of the learning rate in a run of `steps` steps.
std::int64_t decay_steps_of_depth(std::int64_t steps);

/// Returns true if decay_steps_of_depth() gives optim.decay_steps as soon as the steps are known.
bool decay_follows_depth(const RunConfig& config, const config::ConfigSet& keys);

}  // namespace trireme::train
