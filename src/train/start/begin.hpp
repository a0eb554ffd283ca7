#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "train/start/frozen_start.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_model.hpp"
#include "train/start/run_request.hpp"
#include "train/state/fingerprint.hpp"

namespace trireme::train {

/// The result of a validation.
struct ValidationLoss {
  std::int64_t step = -1;  // -1: no validation yet
  double loss = 0;
};

/// The state of a run before its first step.
struct StartState {
  Fingerprint fingerprint;  // fingerprint of this start
  Progress progress;
  std::int64_t own_step = -1;  // step of the run's own checkpoint that it resumes from; -1: none
  // true: starts from a training state (of this run or of another run)
  bool has_training_state = false;
  ValidationLoss valid_loss;  // validation loss in the checkpoint; step -1 if it has none
  // true if the run resumes and still validates on the data of its checkpoint
  bool valid_data_is_same = false;
  bool has_critic = false;   // true if the critic has the state of the checkpoint
  bool has_average = false;  // true if the checkpoint holds the EMA of the weights
  RunValues saved;           // values of the checkpoint that this state comes from
  // values that are copied unchanged into every checkpoint of this run (for exports)
  RunValues carried;
  std::map<std::string, std::string> files;  // files that are copied into every checkpoint, by name
};

/// Loads the weights and the training state from the checkpoint that the run starts from. This is
/// the newest valid checkpoint of the run, otherwise the checkpoint that checkpoint.resume names.
/// If there is no checkpoint, initializes the weights. For LoRA, the base weights come from
/// `frozen`, and new adapters are initialized. Renames damaged checkpoints of later steps.
/// Collective; throws on all ranks.
StartState begin(const RunRequest& run, const RunData& data, const FrozenStart& frozen,
                 RunModel& model);

}  // namespace trireme::train
