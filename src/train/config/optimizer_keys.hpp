#pragma once
#include "config/config_set.hpp"
#include "optim/config.hpp"

namespace trireme {

/// Once `optim.name` is known: gives the chosen optimizer's keys its defaults where nobody set
/// them, and leaves out the keys that it lacks. One of those that a command gives is a problem; a
/// warm-up that is longer than train.steps a warning.
///   optim  what `keys` fill
void settle_optimizer_keys(const OptimConfig& optim, ConfigSet& keys);

}  // namespace trireme
