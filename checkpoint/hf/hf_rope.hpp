#pragma once
#include "checkpoint/hf/hf_reader.hpp"
#include "model/config.hpp"

/// Converts the rotary settings of a config.json. transformers 4 uses rope_theta and rope_scaling
/// at the top level, transformers 5 uses rope_parameters.
namespace trireme::checkpoint {

/// Sets rope_theta and rope_scaling. Reports any scaling except default, yarn and llama3 to
/// `reader`.
void read_hf_rope(const Json& config, model::ModelConfig& model, HfReader& reader);

/// Writes the keys of transformers 4 and 5, including the values that transformers would otherwise
/// derive itself.
void put_hf_rope(const model::ModelConfig& model, Json& config);

}  // namespace trireme::checkpoint
