#pragma once
#include <map>
#include <string>

#include "config/config_set.hpp"

namespace trireme {

/// The resolved configuration as values of a checkpoint: "config.optim.lr" -> "0.0003".
void save_config(std::map<std::string, std::string>& values, const ConfigSet& config);

/// Compares what a checkpoint was trained with against `config`. Keys that change what is computed
/// must agree; those that only say how, where or how long (layout, device, micro-batch, logging,
/// number of steps) may differ. Throws Error(usage) naming every field that differs with both
/// values and the place of the new one.
void check_same_run(const std::map<std::string, std::string>& values,
                    const ConfigSet& config,
                    const std::string& checkpoint);

/// One word for what the run computes: hash of the keys above that must agree and of the data.
std::string run_identity(const ConfigSet& config, const std::string& data_hash);

}  // namespace trireme
