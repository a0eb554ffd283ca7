#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "checkpoint/hf/hf_export.hpp"
#include "model/config.hpp"

/// The files of an exported folder besides its weights.
namespace trireme {

/// Name -> content: config.json, generation_config.json, tokenizer files, chat template, model
/// card. The chat template is the Jinja text of the format that the checkpoint names
/// (kChatTemplateValue); where it names none the carried files stay as they are. Throws Error(data)
/// for a format that this version does not know.
std::map<std::string, std::string> export_files(const Checkpoint& checkpoint,
                                                const ModelConfig& config, DType dtype);

/// The tokenizer's files and the chat template alone, as export_files has them.
std::map<std::string, std::string> exported_tokenizer(const Checkpoint& checkpoint);

/// Throws Error(internal) unless that config.json describes the same model.
void check_exported_config(const std::filesystem::path& folder, const ModelConfig& config);

}  // namespace trireme
