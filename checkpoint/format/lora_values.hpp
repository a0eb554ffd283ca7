#pragma once
#include <map>
#include <string>
#include <string_view>

#include "model/lora/lora_config.hpp"

/// Adapters in the values of a checkpoint: "lora.<field>" for every field of LoraConfig, as text. A
/// checkpoint that has them holds adapters in place of weights (hf/lora.hpp).
namespace trireme {

void put_lora_values(const LoraConfig& config, std::map<std::string, std::string>& values);

[[nodiscard]] bool holds_adapters(const std::map<std::string, std::string>& values);

/// Throws Error(data) naming `where` for values that are missing, not of their type, or out of range.
LoraConfig lora_from_values(const std::map<std::string, std::string>& values,
                            std::string_view where);

}  // namespace trireme
