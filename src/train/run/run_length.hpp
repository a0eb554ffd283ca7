#pragma once
#include "train/run/run_data.hpp"
#include "train/run/run_request.hpp"

/// The length of a run: how many updates it has, and at which sample the last one ends.
namespace trireme {

/// Settles train.steps and train.num_samples. If train.steps is 0, both follow from
/// train.num_samples or train.epochs: the run goes on from the state that it starts with to that
/// sample, and its last update holds the rest. Logs a warning on rank 0 if one update holds more
/// samples than the epochs ask for. Throws Error(usage) for epochs of data that has none, and for
/// numbers that cannot go together.
void settle_length(const RunRequest& run, const RunData& data);

/// Throws Error(usage) if train.steps is less than `done`.
void check_steps(const RunRequest& run, std::int64_t done);

}  // namespace trireme
