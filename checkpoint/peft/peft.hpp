#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
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
/// read back and compared, with the tokenizer and the chat template of its model. `base_name`:
/// base_model_name_or_path, a Hugging Face folder or hub name; "": null. Throws Error(usage) if the
/// folder exists, or if the checkpoint holds no adapters.
void export_peft(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                 Communicator& world, DType dtype = DType::f32, const std::string& base_name = "");

/// Adapters in float32, ready to save beside their base; tensors lie in `storage`.
struct PeftAdapters {
  StateDict state;  // with the base's model values and files
  std::vector<std::vector<std::byte>> storage;
  std::string run_id;  // from the content
};

/// Reads such a folder for the model that it was trained on: its values (model.*) and files, which go
/// with the adapters; `where` names the model. A chat template that the folder has takes the place of
/// the model's. Throws Error(data) naming what it has that this program has no equal for (other kinds
/// of adapters, biases, whole modules, ranks of their own, layers without), and every tensor that does
/// not fit the model.
PeftAdapters read_peft(const std::filesystem::path& folder,
                       const std::map<std::string, std::string>& base_values,
                       const std::map<std::string, std::string>& base_files,
                       const std::string& where);

}  // namespace trireme
