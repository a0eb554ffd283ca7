#pragma once
#include <cstdint>
#include <filesystem>

#include "checkpoint/exchange/resize_vocab.hpp"
#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"
#include "core/dtype.hpp"

namespace trireme::checkpoint {

struct ExportOptions {
  DType dtype = DType::f32;                      // f32 is exact; bf16 and f16 round to nearest even
  std::uint64_t max_file_bytes = 5'000'000'000;  // more: several safetensors files and an index
  // base model, if the checkpoint contains adapters; otherwise null
  const Checkpoint* base = nullptr;
};

/// Writes a directory that Hugging Face transformers loads without remote code. It contains
/// config.json, generation_config.json, safetensors files, the tokenizer files of the checkpoint
/// (unchanged), special_tokens_map.json, the chat template of the run and a model card.
///
/// Shape and weights come only from the checkpoint. If it contains adapters, they are added to the
/// weights of their base (lora.hpp). `directory` must not exist. The files are written to a
/// temporary directory, read back and compared; then one rename creates `directory`. Collective:
/// each rank writes a part of the weights. Throws Error(usage) if `directory` exists or the dtype
/// is not f32, bf16 or f16, Error(data) if the parameters of the checkpoint do not match its shape.
void export_hf(const Checkpoint& checkpoint, const std::filesystem::path& directory,
               comm::Communicator& world, const ExportOptions& options = {});

/// Imports a model directory of a supported family (one or several safetensors files; f32, bf16,
/// f16) as the checkpoint `directory`/step-000000000 with float32 parameters and the tokenizer files. Needs memory for the whole model in float32. If the tokenizer cannot be read,
/// logs a warning, or with `require_tokenizer` throws Error(data) (tokenizer_check.hpp). Throws
/// Error(data) naming every config key or tensor that is not supported, missing or extra;
/// Error(usage) if `directory` already contains a checkpoint of step 0.
std::filesystem::path import_hf(const std::filesystem::path& model,
                                const std::filesystem::path& directory,
                                bool require_tokenizer = false, const VocabChange& change = {});

}  // namespace trireme::checkpoint
