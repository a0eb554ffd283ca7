#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "train/start/frozen_start.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_model.hpp"
#include "train/start/run_request.hpp"
#include "train/state/fingerprint.hpp"

namespace trireme {

/// Of a held-out set.
struct ValidLoss {
  std::int64_t step = -1;  // none
  double loss = 0;
};

/// Where a run stands before its first step.
struct Beginning {
  Fingerprint fingerprint;  // of this start
  Progress progress;
  std::int64_t own_step = -1;  // the checkpoint in the run's own folder that it goes on from
  bool goes_on = false;        // from a state, its own or another run's: not from weights alone
  ValidLoss valid_loss;        // of that state, where it was validated
  RunValues saved;             // of the checkpoint that has that state
  RunValues carried;           // into every checkpoint of this run: for exports and the next resume
  std::map<std::string, std::string> files;  // carried into them, by name
};

/// Collective: sets the weights, and all else of the state, from the checkpoint that the run begins
/// with (its own newest good one, else the one that checkpoint.resume names), or initializes them.
/// Adapters: what they are added to comes from `frozen`, and new ones are initialized. Damaged
/// checkpoints of later steps are moved out of the way. Throws on all ranks.
Beginning begin(const RunRequest& run, const RunData& data, const FrozenStart& frozen,
                RunModel& model);

}  // namespace trireme
