#pragma once
#include <optional>
#include <string>

#include "checkpoint/load/load.hpp"
#include "train/run/run_request.hpp"

/// The model that a run's task holds frozen: its weights are kept in the run's folder, so that the
/// run goes on when what it began from is gone.
namespace trireme {

struct KeptWeights {
  Checkpoint checkpoint;  // RUN/<name>/step-000000000
  std::string key;        // of the run's values, that names them: "reference.weights_sha256"
  std::string sha256;     // hash_tensors of the weights
};

/// Collective: the weights of the task's frozen model, in RUN/<name>: what is there already, else a
/// copy of what the task names or the run starts from, made now. None where the task needs none.
/// Call with the run's lock. Throws Error(data) if they are gone, damaged, or not those that the run
/// began with.
std::optional<KeptWeights> keep_frozen(const RunRequest& run);

}  // namespace trireme
