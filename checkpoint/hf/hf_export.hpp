#pragma once
#include <cstdint>
#include <filesystem>

#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"
#include "core/dtype.hpp"

namespace trireme {

struct ExportOptions {
  DType dtype = DType::f32;                      // f32 is exact; bf16 and f16 round to nearest even
  std::uint64_t max_file_bytes = 5'000'000'000;  // beyond: several safetensors files and an index
  const Checkpoint* base = nullptr;  // of a checkpoint of adapters: what they are added to
};

/// Writes a folder that Hugging Face transformers loads without remote code: config.json,
/// generation_config.json, safetensors, the checkpoint's tokenizer files byte for byte,
/// special_tokens_map.json, the chat template of the run, a model card. Shape and weights come from
/// the checkpoint alone; adapters are added to their base's weights (lora.hpp).
/// `folder` must not exist; it appears whole, by one rename, after all of it was read back and
/// compared. Collective: the ranks share the
/// weights. Throws Error(usage) if `folder` exists or the dtype is not f32, bf16 or f16,
/// Error(data) for a checkpoint whose parameters are not those of its shape.
void export_hf(const Checkpoint& checkpoint, const std::filesystem::path& folder,
               Communicator& world, const ExportOptions& options = {});

/// Reads a model folder (Qwen3, Qwen3 MoE, Llama or Mistral; one or several safetensors files; f32, bf16, f16)
/// into a checkpoint of step 0 with float32 parameters and the tokenizer files:
/// `folder`/step-000000000, ready to train from or to generate. Memory: the whole model in float32.
/// If the tokenizer cannot be read, warns, or with `require_tokenizer` refuses (tokenizer_check.hpp).
/// Throws Error(data) naming every config key or tensor that is not supported, missing or extra,
/// Error(usage) if `folder` has a checkpoint of step 0 already.
std::filesystem::path import_hf(const std::filesystem::path& model,
                                const std::filesystem::path& folder,
                                bool require_tokenizer = false);

}  // namespace trireme
