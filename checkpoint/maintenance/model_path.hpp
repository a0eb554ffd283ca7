#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"

/// Opens a model at a path. All options that take a model accept a checkpoint, a run (its newest
/// checkpoint), a run of adapters (LoRA) or a Hugging Face directory.
namespace trireme::checkpoint {

/// Help text of every option that takes a model.
inline constexpr const char* kModelPathHelp =
    "checkpoint, run (LoRA too) or Hugging Face directory";

/// The description of a model in its manifest or config.json.
struct ModelDescription {
  std::filesystem::path place;                // step directory or Hugging Face directory
  std::map<std::string, std::string> values;  // values of a checkpoint: model.*, chat.*, lora.*
  std::map<std::string, std::string> files;   // tokenizer.json and other files of the model
};

/// Reads the description without the weights. For a run, uses the newest checkpoint with a readable
/// manifest. If `place` is not a model, throws Error(data) with advice.
ModelDescription read_model_description(const std::filesystem::path& place);

/// A checkpoint that contains all weights of a model.
struct WholeModel {
  Checkpoint checkpoint;
  bool made = false;  // true: this call wrote the checkpoint, as step 0 of `directory`
};

/// Opens the model at `place`. Opens a checkpoint or run like open_newest_good(). If `place` is a
/// Hugging Face directory, imports it into `directory`. If `place` has adapters, adds them to their
/// base (computed in fp64) and writes the result to `directory`. Before it writes, it deletes the
/// previous content of `directory`. The caller must hold the lock of the run that contains
/// `directory`.
/// If a checkpoint is written, each rank writes a part of the tensors and has one of them in memory.
/// Collective. Throws Error(data) for a damaged or incomplete model.
WholeModel open_whole_model(const std::filesystem::path& place,
                            const std::filesystem::path& directory, comm::Communicator& world,
                            bool allow_older = false);

/// Writes the weights of the model at `place` as step 0 of `directory`. Like publish_weights(), but
/// accepts every kind of model path. Collective.
Checkpoint publish_model(const std::filesystem::path& place, const std::filesystem::path& directory,
                         comm::Communicator& world, bool allow_older = false);

/// Returns the hash of the weights at `place` (hash_tensors of "param/"). For a run of adapters,
/// hashes only the adapters. For a Hugging Face directory, hashes the weights as they would be
/// after the import; each rank reads a part of them. Collective.
std::string hash_model(const std::filesystem::path& place, comm::Communicator& world,
                       bool allow_older = false);

}  // namespace trireme::checkpoint
