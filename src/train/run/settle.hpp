#pragma once
#include <memory>
#include <string>

#include "train/run/run_data.hpp"
#include "train/run/run_request.hpp"

/// Before anything is made: the configuration becomes whole, and is held against data, start and
/// machine.
namespace trireme {

/// Collective: fills in what the configuration leaves open until the ranks are up
/// (open_values.hpp). Returns a line for the log, or "".
std::string choose_values(const RunRequest& run);

/// Opens the data, resolves the configuration with it, and checks both against what the run starts
/// from and against this machine's memory. Throws Error(usage), Error(data) or Error(resource).
std::unique_ptr<RunData> open_data(const RunRequest& run);

/// Of a run that takes the state of a checkpoint with these values: "" if it goes on in the data
/// where that stopped, else why it begins at sample 0. `where`: the checkpoint.
std::string other_data(const ConfigSet& keys, const SampleStream& stream, const RunValues& values,
                       const std::string& where);

/// Checks that the resolved configuration fits what the run starts from: the run's own keys and data, or
/// the model, adapters and chat format of another checkpoint. Throws Error(usage); changes nothing.
void check_start(const RunStart& start, const RunConfig& config, const ConfigSet& keys,
                 const RunData& data);

}  // namespace trireme
