#pragma once
#include <string>

#include "config/config_set.hpp"
#include "train/config/config.hpp"
#include "train/state/fingerprint.hpp"
#include "train/state/run_values.hpp"

namespace trireme::train {

/// The values of a resumed run that are compared with its checkpoint.
struct Continuation {
  const RunValues& values;  // values of the checkpoint
  const RunConfig& config;  // resolved configuration
  const config::ConfigSet& keys;
  const Fingerprint& fingerprint;
  std::string plan_hash;  // SampleStream::plan_hash; "" if the data is other data
  std::int64_t step = 0;  // number of completed steps
  bool is_on_gpu = false;
};

/// Returns one line for the log: how closely the next steps will match those of the run that wrote
/// the checkpoint, which steps differ, and why.
std::string describe_continuation(const Continuation& continuation);

}  // namespace trireme::train
