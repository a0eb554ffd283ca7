#pragma once
#include <map>
#include <string>
#include <string_view>

#include "model/config.hpp"

/// The model's shape inside StateDict::values and a manifest: "model.<field>" for every field of
/// ModelConfig, as text. Everything that reads a checkpoint (export, generate, serve) takes the
/// shape from here, never from flags.
namespace trireme {

/// Adds every field; numbers in shortest form that reads back exactly, booleans true or false.
void put_model_values(const ModelConfig& config, std::map<std::string, std::string>& values);

/// Throws Error(data) naming `where` and the key: unknown "model.*" keys (a newer program's shape
/// must not be read as an older one's), text that is not of the field's type, sizes that resolve
/// refuses. A missing key has its default.
ModelConfig model_from_values(const std::map<std::string, std::string>& values,
                              std::string_view where);

/// True for values of a checkpoint that are its model's, not its run's: the shape, the chat format,
/// the family that it was imported as.
[[nodiscard]] bool is_model_value(std::string_view key);

}  // namespace trireme
