#pragma once
#include <map>
#include <string>
#include <string_view>

#include "model/lora/lora_config.hpp"

/// Stores LoraConfig in the values of a checkpoint: "lora.<field>" for every field, as text. A
/// checkpoint with these values contains adapters instead of weights (exchange/lora.hpp).
namespace trireme {

void put_lora_values(const LoraConfig& config, std::map<std::string, std::string>& values);

[[nodiscard]] bool holds_adapters(const std::map<std::string, std::string>& values);

/// Throws Error(data) naming `where` if a value is missing, has a wrong type or is out of range.
LoraConfig lora_from_values(const std::map<std::string, std::string>& values,
                            std::string_view where);

}  // namespace trireme
