#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/hf/hf_export.hpp"
#include "model/config.hpp"

/// Makes the files of an exported directory except the weights.
namespace trireme::checkpoint {

/// Returns config.json, generation_config.json, tokenizer files, chat template and model card, by
/// name. The chat template is the Jinja text of the format that the checkpoint names
/// (kChatTemplateValue); without this value the copied files stay unchanged. Throws Error(data) for
/// an unknown format.
std::map<std::string, std::string> export_files(const Checkpoint& checkpoint,
                                                const model::ModelConfig& config, DType dtype);

/// Returns only the tokenizer files and the chat template, as in export_files.
std::map<std::string, std::string> exported_tokenizer(const Checkpoint& checkpoint);

/// Throws Error(internal) unless config.json in `directory` describes the same model.
void check_exported_config(const std::filesystem::path& directory,
                           const model::ModelConfig& config);

}  // namespace trireme::checkpoint
