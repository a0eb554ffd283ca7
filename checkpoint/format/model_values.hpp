#pragma once
#include <map>
#include <string>
#include <string_view>

#include "model/config.hpp"
#include "model/lora/lora_config.hpp"

/// Stores the model's shape in StateDict::values and in a manifest: "model.<field>" for every field
/// of ModelConfig, as text. All readers of a checkpoint (export, generate, serve) take the shape
/// from these values, never from flags.
namespace trireme::checkpoint {

/// Adds every field. Numbers use the shortest text that reads back exactly; booleans are true or
/// false.
void put_model_values(const model::ModelConfig& config, std::map<std::string, std::string>& values);

/// Throws Error(data) naming `where` and the key for unknown "model.*" keys (the shape of a newer
/// program must not be misread), text of a wrong type, and sizes that resolve refuses. A missing
/// key has its default.
model::ModelConfig model_from_values(const std::map<std::string, std::string>& values,
                                     std::string_view where);

/// Returns true for values that belong to the model and not to the run: the shape, the chat format
/// and the family it was imported from.
[[nodiscard]] bool is_model_value(std::string_view key);

/// Stores LoraConfig as "lora.<field>" for every field. A checkpoint with these values contains
/// adapters instead of weights (exchange/lora.hpp).
void put_lora_values(const model::LoraConfig& config, std::map<std::string, std::string>& values);

[[nodiscard]] bool holds_adapters(const std::map<std::string, std::string>& values);

/// Throws Error(data) naming `where` if a value is missing, has a wrong type or is out of range.
model::LoraConfig lora_from_values(const std::map<std::string, std::string>& values,
                                   std::string_view where);

}  // namespace trireme::checkpoint
