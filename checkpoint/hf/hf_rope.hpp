#pragma once
#include "checkpoint/hf/hf_family.hpp"
#include "checkpoint/hf/hf_reader.hpp"
#include "model/config.hpp"

/// Converts the rotary settings of a config.json. transformers 4 uses rope_theta and rope_scaling
/// at the top level, transformers 5 uses rope_parameters.
namespace trireme::checkpoint {

/// Sets rope_theta, rope_scaling and rotary_dim. max_position_embeddings, which is model.max_seq_len
/// here, becomes the original length for longrope. Reports other kinds of scaling and unknown keys
/// to `reader`.
void read_hf_rope(const Json& config, const Family& family, model::ModelConfig& model,
                  HfReader& reader);

/// Writes the keys of transformers 4 and 5, including the values that transformers would otherwise
/// derive itself.
void put_hf_rope(const model::ModelConfig& model, const Family& family, Json& config);

}  // namespace trireme::checkpoint
