#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"

/// One rule for what may stand where a model is asked for: a checkpoint, a run (its newest
/// checkpoint), a run of adapters (LoRA), or a Hugging Face folder.
namespace trireme {

/// Help text of every option that takes a model.
inline constexpr const char* kModelPlaceHelp = "checkpoint, run (LoRA too) or Hugging Face folder";

/// A model as its manifest or config.json describes it.
struct ModelDescription {
  std::filesystem::path place;                // the step folder or Hugging Face folder
  std::map<std::string, std::string> values;  // as a checkpoint has them: model.*, chat.*, lora.*
  std::map<std::string, std::string> files;   // tokenizer.json and others that belong to it
};

/// Reads no weights. Takes the newest checkpoint of a run whose manifest can be read. Throws
/// Error(data) if `place` is no model, naming what it is.
ModelDescription read_model_description(const std::filesystem::path& place);

/// A checkpoint that holds all weights of a model.
struct WholeModel {
  Checkpoint checkpoint;
  bool made = false;  // it was written now, as step 0 of the folder that the caller gave
};

/// Collective: opens the model at `place` as open_newest_good does. A Hugging Face folder is imported
/// into `folder`; adapters are added to their base (computed in fp64) and written there. The rest of
/// `folder` is removed before. The caller holds the lock of the run that `folder` belongs to.
///   memory  the whole model on rank 0, if it is made
/// Throws Error(data) for what is damaged or incomplete.
WholeModel open_whole_model(const std::filesystem::path& place, const std::filesystem::path& folder,
                            Communicator& world, bool allow_older = false);

/// Collective: the model at `place` as step 0 of `folder`, weights alone. Like publish_weights, for
/// any place.
Checkpoint publish_model(const std::filesystem::path& place, const std::filesystem::path& folder,
                         Communicator& world, bool allow_older = false);

/// Collective: the hash of the weights at `place` (hash_tensors of "param/"): of a run of adapters
/// that of the adapters, of a Hugging Face folder that of its import. Only rank 0 reads a folder.
std::string hash_model(const std::filesystem::path& place, Communicator& world,
                       bool allow_older = false);

}  // namespace trireme
