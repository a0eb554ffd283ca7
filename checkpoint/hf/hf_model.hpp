#pragma once
#include <filesystem>

#include "checkpoint/exchange/import_weights.hpp"
#include "comm/communicator.hpp"

namespace trireme::checkpoint {

/// A Hugging Face model directory on disk.
struct HfModel {
  ImportedModel model;
  WeightSource weights;  // read on demand
};

/// Returns true for a directory with a config.json. Checkpoints and runs have no such file.
bool is_hf_directory(const std::filesystem::path& directory);
/// Returns the result of rank 0 on all ranks. Collective.
bool is_hf_directory(const std::filesystem::path& directory, comm::Communicator& world);

/// Opens a model directory. Throws Error(data) if files are missing or damaged, or if config.json
/// has keys that are not supported; the error names all such keys.
HfModel open_hf_model(const std::filesystem::path& directory);

}  // namespace trireme::checkpoint
