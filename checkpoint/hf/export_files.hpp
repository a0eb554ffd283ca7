#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/hf/hf_export.hpp"
#include "model/config.hpp"

/// Makes all files of an exported directory except the weights.
namespace trireme::checkpoint {

/// Returns the model_type of the model that the checkpoint was imported from; "" if there is none.
std::string family_value(const Checkpoint& checkpoint);

/// Returns the content of config.json, generation_config.json, the tokenizer files, the chat
/// template and the model card, by file name. The chat template is the Jinja text of the chat
/// format that the checkpoint names (kChatTemplateValue). If the checkpoint does not have this
/// value, the copied tokenizer files stay unchanged. Throws Error(data) for an unknown format.
std::map<std::string, std::string> export_files(const Checkpoint& checkpoint,
                                                const model::ModelConfig& config, DType dtype);

/// Returns only the tokenizer files and the chat template, as in export_files.
std::map<std::string, std::string> exported_tokenizer(const Checkpoint& checkpoint);

/// Throws Error(internal) if config.json in `directory` does not describe the model `config`.
void check_exported_config(const std::filesystem::path& directory,
                           const model::ModelConfig& config);

}  // namespace trireme::checkpoint
