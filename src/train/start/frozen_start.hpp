#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/load/load.hpp"
#include "checkpoint/maintenance/model_path.hpp"
#include "train/health/memory_need.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_request.hpp"

/// Frozen weights are copied into the run directory, so that the run can resume after their source
/// was deleted.
namespace trireme::train {

/// Subdirectory of the run directory for a start that is not a checkpoint of whole weights (a
/// Hugging Face directory, or adapters that are not trained). It is removed after its weights are
/// loaded.
inline constexpr const char* kConvertedStart = "init";

struct FrozenWeights {
  checkpoint::Checkpoint checkpoint;  // RUN/<name>/step-000000000
  std::string name;                   // key in RunValues::weights_sha256, for example "reference"
  std::string sha256;                 // hash_tensors of the weights
};

/// The frozen weights of a run, and the weights that the run starts from.
struct FrozenStart {
  /// Source of the weights of a new run; empty if the run resumes or starts from random weights.
  std::optional<checkpoint::WholeModel> start;
  std::string init_sha256;             // hash of the weights that the run started from; "": random
  std::optional<FrozenWeights> base;   // base weights of LoRA adapters: RUN/base
  std::optional<FrozenWeights> model;  // frozen model of the task (reference or teacher)
};

/// Returns the directories that may have a copy of the task's frozen model: one in the directory of
/// a resumed run, and one in the directory of the run that this run continues. Empty without a frozen
/// model.
std::vector<std::filesystem::path> frozen_copies(const RunRequest& run);

/// Returns the models that the run holds beside the trained one. The manifest of the task's frozen
/// model states its parameter counts; a model without a readable manifest is absent. `config` is
/// resolved. The first readable one of `copies` is used instead of the model that a key names.
std::vector<ModelBeside> models_beside(const Task& task, const RunConfig& config,
                                       std::span<const std::filesystem::path> copies);

/// Checks that the task's frozen model exists and fits the tokens of `data`. Reads only manifests.
/// Does nothing if the run resumes and has a copy. A run that continues another run checks
/// the copy of that run. Throws Error(data) or Error(usage).
void check_frozen(const RunRequest& run, const RunData& data);

/// Copies the frozen weights into the run directory, or opens the copy of a resumed run, and
/// checks their tokenizer against `data`. Converts a source that is not a checkpoint of whole
/// weights (Hugging Face directory, adapters). Throws Error(data) if the weights are missing,
/// damaged, or not the ones that the run started with. Collective; the caller holds the run's
/// lock.
FrozenStart store_frozen_weights(const RunRequest& run, const RunData& data);

/// Removes the converted start (RUN/init) on rank 0. Call it after its weights are loaded.
void remove_converted_start(const FrozenStart& frozen, const RunRequest& run);

/// Puts the hashes of the frozen weights into the values of the run's checkpoints.
void put_frozen_hashes(const FrozenStart& frozen, RunValues& values);

}  // namespace trireme::train
