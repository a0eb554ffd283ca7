#pragma once
#include <string>

#include "config/config_set.hpp"
#include "train/config/config.hpp"
#include "train/state/fingerprint.hpp"
#include "train/state/run_values.hpp"

namespace trireme {

/// What a run that goes on from a checkpoint is compared with.
struct Continuation {
  const RunValues& values;  // of the checkpoint
  const RunConfig& config;  // resolved
  const ConfigSet& keys;
  const Fingerprint& fingerprint;
  std::string plan_hash;  // SampleStream's, "" where the data is another
  std::int64_t step = 0;  // done
};

/// One line: what equality to expect of the steps to come, beside those of the run that the
/// checkpoint is from; which of them differ, and why.
std::string describe_continuation(const Continuation& continuation);

}  // namespace trireme
