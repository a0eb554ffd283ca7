#pragma once
#include <string>

#include "config/config_set.hpp"
#include "train/run/run_data.hpp"
#include "train/run/run_start.hpp"

/// The length of a run: how many updates it has, and at which sample the last one ends.
namespace trireme {

/// Settles train.steps and train.num_samples. If train.steps is 0, both follow from
/// train.num_samples or train.epochs: the run goes on from the state that it starts with to that
/// sample, and its last update holds the rest. Returns a warning if one update holds more samples than
/// the epochs ask for, else "". Throws Error(usage) for epochs of data that has none, and for numbers
/// that cannot go together.
std::string settle_length(RunConfig& config, const RunStart& start, const ConfigSet& keys,
                          const RunData& data);

/// Throws Error(usage) if `steps` (train.steps) is less than `done`.
void check_steps(const RunStart& start, std::int64_t steps, std::int64_t done);

}  // namespace trireme
