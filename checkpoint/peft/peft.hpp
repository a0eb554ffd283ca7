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

/// Reads and writes adapter directories of Hugging Face peft: adapter_config.json and
/// adapter_model.safetensors. Tensor names have the prefix "base_model.model.".
/// Source: peft 0.21, tuners/lora/config.py and utils/save_and_load.py.
namespace trireme::checkpoint {

/// Writes `directory` from a checkpoint of adapters (exchange/lora.hpp), with the tokenizer and the
/// chat template of its model. The directory appears complete, after all files were read back and
/// compared. `base_name`: base_model_name_or_path, a Hugging Face directory or hub name; "": null.
/// Collective. Throws Error(usage) if the directory exists or the checkpoint contains no adapters.
void export_peft(const Checkpoint& checkpoint, const std::filesystem::path& directory,
                 comm::Communicator& world, DType dtype = DType::f32,
                 const std::string& base_name = "");

/// Adapters in float32, ready to save beside their base. `storage` owns the bytes of the tensors.
struct PeftAdapters {
  StateDict state;  // includes the model values and files of the base
  std::vector<std::vector<std::byte>> storage;
  std::string run_id;  // hash of the content
};

/// Reads such a directory for the model it was trained on. `base_values` (model.*) and `base_files`
/// of that model are stored with the adapters; `where` names the model. A chat template in the
/// directory replaces the template of the model. Throws Error(data) naming every unsupported
/// setting (other kinds of adapters, biases, whole modules, individual ranks, layers without
/// adapters) and every tensor that does not fit the model.
PeftAdapters read_peft(const std::filesystem::path& directory,
                       const std::map<std::string, std::string>& base_values,
                       const std::map<std::string, std::string>& base_files,
                       const std::string& where);

}  // namespace trireme::checkpoint
