#pragma once
#include <filesystem>

#include "checkpoint/exchange/import_weights.hpp"

namespace trireme {

/// A Hugging Face folder as it lies on disk: Qwen3, Qwen3 MoE, Llama or Mistral.
struct HfModel {
  ImportedModel model;
  WeightSource weights;  // read where they are asked for
};

/// True for a folder with a config.json, which no checkpoint and no run has.
bool is_hf_folder(const std::filesystem::path& folder);

/// Throws Error(data) naming every key of config.json that is not supported, and for files that are
/// absent or damaged.
HfModel open_hf_model(const std::filesystem::path& folder);

}  // namespace trireme
