#pragma once
#include <filesystem>
#include <string>

#include "model/config.hpp"

namespace trireme {

struct MinimindImport {
  std::filesystem::path file;       // .pth or .safetensors
  ModelConfig model;                // its shape, with a preset or sizes; vocab_size 0: the file's
  std::filesystem::path tokenizer;  // folder of its files; "": none
  bool require_tokenizer = false;   // refuse one that is absent or cannot be read
};

/// Makes a checkpoint of step 0, `folder`/step-000000000, from weights of MiniMind's trainers, which
/// say nothing of their shape. V1 and V2 (tok_embeddings, wq, w1): names become Hugging Face's, and
/// rows of wq and wk are put in the order of rotate-half: their rotation takes neighbours 2i, 2i+1 of
/// a head as a complex number, ours elements i and i + D/2. V2.1 and later have these names and this
/// order already. Throws Error(data) for a damaged file, naming every tensor that is not the
/// shape's; Error(usage) for a shape that is wrong in itself.
/// Source: jingyaogong/minimind, 7da201a (V2) and a62faf3 (V2.1).
std::filesystem::path import_minimind(const MinimindImport& import,
                                      const std::filesystem::path& folder);

}  // namespace trireme
