#pragma once
#include "checkpoint/hf/hf_reader.hpp"
#include "model/config.hpp"

/// Rotary frequencies in a config.json: transformers 4 has rope_theta and rope_scaling at the top, 5
/// all of it in rope_parameters.
namespace trireme {

/// Sets rope_theta and rope_scaling. Anything but default, yarn and llama3 is a problem of the
/// reader's.
void read_hf_rope(const Json& config, ModelConfig& model, HfReader& reader);

/// Writes both generations' keys, with every value that transformers would derive.
void put_hf_rope(const ModelConfig& model, Json& config);

}  // namespace trireme
