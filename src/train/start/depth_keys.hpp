#pragma once
#include "config/config_set.hpp"
#include "train/config/config.hpp"

namespace trireme::train {

/// Sets the keys that follow from model.depth and that nothing else sets: the sizes of the model and,
/// if `begins_anew`, the batch, the steps, the optimizer with its rates, and the weight decay. The
/// origin of each key is its rule, which `trireme config show --origin` prints. Called after the
/// preset was applied.
void apply_depth(const RunConfig& config, config::ConfigSet& keys, bool begins_anew);

}  // namespace trireme::train
