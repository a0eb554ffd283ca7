#pragma once
#include <string>

#include "config/config_set.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_start.hpp"

/// The length of a run: how many updates it has, and at which sample the last one ends.
namespace trireme {

struct RunLength {
  std::int64_t steps = 0;        // train.steps
  std::int64_t num_samples = 0;  // train.num_samples
  std::string warning;           // one update holds more samples than the epochs ask for, or ""
};

/// Returns the length that the configuration asks for. If train.steps is 0, it follows from
/// train.num_samples or train.epochs: the run continues from the state that it starts with to that
/// sample, and its last update holds the rest. Throws Error(usage) for epochs of data that has none,
/// and for numbers that cannot go together.
RunLength run_length(const RunConfig& config, const RunStart& start, const ConfigSet& keys,
                     const RunData& data);

/// Throws Error(usage) if `steps` (train.steps) is less than `done`.
void check_steps(const RunStart& start, std::int64_t steps, std::int64_t done);

}  // namespace trireme
