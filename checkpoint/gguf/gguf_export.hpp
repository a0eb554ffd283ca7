#pragma once
#include <filesystem>

#include "checkpoint/gguf/gguf_file.hpp"
#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"

namespace trireme::checkpoint {

/// Writes DIRECTORY/model.gguf, a file that llama.cpp loads: weights, tokenizer and chat
/// template. Matrices have the type `type`; see gguf_tensors. Rank 0 writes. With `base`, the
/// checkpoint holds adapters, which are merged into its weights. Collective. Throws Error(usage)
/// if llama.cpp does not compute such a model, or has no such tokenizer.
void export_gguf(const Checkpoint& checkpoint, const Checkpoint* base,
                 const std::filesystem::path& directory, comm::Communicator& world, GgufType type);

}  // namespace trireme::checkpoint
