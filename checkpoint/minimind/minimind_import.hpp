#pragma once
#include <filesystem>
#include <string>

#include "model/config.hpp"

namespace trireme::checkpoint {

struct MinimindImport {
  std::filesystem::path file;  // .pth or .safetensors
  model::ModelConfig model;    // shape from a preset or sizes; vocab_size 0: taken from the file
  std::filesystem::path tokenizer;  // directory of tokenizer files; "": none
  bool require_tokenizer = false;   // refuse a tokenizer that is missing or cannot be read
};

/// Imports weights of MiniMind's trainers as the checkpoint `directory`/step-000000000. The files
/// do not describe the shape.
///
/// - V1 and V2 (tok_embeddings, wq, w1): names are mapped to Hugging Face names. V1 and V2 rotate
///   neighbors 2i, 2i+1 of a head as a complex number; this program rotates elements i and i + D/2.
///   Therefore the rows of wq and wk are reordered.
/// - V2.1 and later already have these names and this order.
///
/// Throws Error(data) for a damaged file and naming every tensor that does not match the shape,
/// Error(usage) for an invalid shape. Source: jingyaogong/minimind, 7da201a (V2) and a62faf3
/// (V2.1).
std::filesystem::path import_minimind(const MinimindImport& import,
                                      const std::filesystem::path& directory);

}  // namespace trireme::checkpoint
