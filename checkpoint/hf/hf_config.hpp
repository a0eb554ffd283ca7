#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/exchange/special_tokens.hpp"
#include "core/dtype.hpp"
#include "core/files/json.hpp"
#include "model/config.hpp"

/// Between ModelConfig and the files of a Hugging Face model folder.
/// Source: transformers 5.23 and 4.57, configuration_{llama,qwen3,qwen3_moe,mistral}.py (names
/// and defaults of the keys).
namespace trireme {

/// The model_type of an export: `wanted` where the shape is of that family too, else qwen3 (qwen3_moe
/// where there are experts) with QK-norm, llama without.
std::string hf_family(const ModelConfig& config, std::string_view wanted = "");

/// What keeps a shape out of every family: "router_score = sigmoid, ..."; "": nothing.
std::string no_hf_family(const ModelConfig& config);

/// config.json of that family, with keys of both transformers generations. The shape must have one.
std::string hf_config_text(const ModelConfig& config, DType dtype,
                           const SpecialTokenIds& special_ids, std::string_view wanted_family = "");

/// The shape that a config.json describes, of model_type qwen3, qwen3_moe, llama or mistral. Throws
/// Error(data) naming every key that this program has no equal for (a window that does not cover
/// all positions, rope scaling other than yarn and llama3, biases, experts in every second
/// layer, other activations, other architectures).
ModelConfig model_from_hf(const Json& config, std::string_view where);

}  // namespace trireme
