#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/state.hpp"
#include "checkpoint/load/load.hpp"
#include "comm/communicator.hpp"
#include "core/dtype.hpp"

/// Folders of adapters as Hugging Face peft writes and loads them: adapter_config.json and
/// adapter_model.safetensors, whose names are ours led by "base_model.model.".
/// Source: peft 0.21, tuners/lora/config.py and utils/save_and_load.py.
namespace trireme {

/// Collective: writes `folder` from a checkpoint of adapters (hf/lora.hpp), whole or not at all,
/// read back and compared. Throws Error(usage) if it exists, or if the checkpoint holds no adapters.
void export_peft(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                 Communicator& world, DType dtype = DType::f32);

/// Adapters in float32, ready to save beside their base; tensors lie in `storage`.
struct PeftAdapters {
  StateDict state;  // with the base's model values and files
  std::vector<std::vector<std::byte>> storage;
  std::string run_id;  // from the content
};

/// Such a folder, for the checkpoint it was trained on. Throws Error(data) naming what it has that
/// this program has no equal for (other kinds of adapters, biases, whole modules, ranks of their own,
/// layers without), and every tensor that does not fit the base; Error(usage) if that holds adapters
/// itself.
PeftAdapters read_peft(const std::filesystem::path& folder, const Checkpoint& base);

}  // namespace trireme
