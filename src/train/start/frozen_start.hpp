#pragma once
#include <optional>
#include <string>

#include "checkpoint/load/load.hpp"
#include "checkpoint/upkeep/model_place.hpp"
#include "train/health/memory_need.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_request.hpp"

/// Weights that a run reads and never changes are kept in its folder, so that it goes on when what
/// it began from is gone.
namespace trireme {

/// Folder in a run's: the checkpoint that is made of a start that is none (a Hugging Face folder,
/// adapters that are not trained on), until its weights are loaded.
inline constexpr const char* kMadeStart = "init";

struct KeptWeights {
  Checkpoint checkpoint;  // RUN/<name>/step-000000000
  std::string name;       // in RunValues::weights_sha256: "reference"
  std::string sha256;     // hash_tensors of the weights
};

/// What a run holds frozen beside what it trains.
struct FrozenStart {
  std::optional<WholeModel> start;   // what a new run takes its weights from; none: it goes on
  std::string init_sha256;           // of what it started from; "": random weights
  std::optional<KeptWeights> base;   // that its adapters are added to: RUN/base
  std::optional<KeptWeights> model;  // of the task's own model
};

/// Of the model that the task of `run`, whose configuration is resolved, will hold beside its own, as
/// manifests say; 0: none, or none can be read now, of which keep_frozen speaks.
FrozenParameters frozen_parameters(const RunRequest& run);

/// Before anything is made: that the model which the task names is there and reads the tokens of
/// `data`, as manifests say; nothing where the run's folder has it already. Throws Error(data),
/// Error(usage).
void check_frozen(const RunRequest& run, const RunData& data);

/// Collective, with the run's lock; weights are held to the tokenizer of `data`: what lies in the run's folder already, else copies of what the
/// task names or the run starts from, made now. Throws Error(data) if they are gone, damaged, or not
/// those that the run began with. Models that are no checkpoint of whole weights (Hugging Face
/// folders, adapters) are made one: the start in RUN/init, others in the folder that keeps them.
FrozenStart keep_frozen(const RunRequest& run, const RunData& data);

/// Rank 0 removes what was made of the start (RUN/init): its weights are loaded.
void remove_made_start(const FrozenStart& frozen, const RunRequest& run);

/// Puts the hashes into the values of the run's checkpoints.
void put_frozen(const FrozenStart& frozen, RunValues& values);

}  // namespace trireme
