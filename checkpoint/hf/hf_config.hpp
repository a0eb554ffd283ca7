#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/exchange/special_tokens.hpp"
#include "core/dtype.hpp"
#include "core/files/json.hpp"
#include "model/config.hpp"

/// Converts between ModelConfig and config.json of a Hugging Face directory.
/// Source: transformers 5.23 and 4.57, configuration_{llama,qwen3,qwen3_moe,mistral}.py (names
/// and defaults of the keys).
namespace trireme::checkpoint {

/// Returns the model_type of an export. If the shape fits the family `wanted`, returns `wanted`.
/// Otherwise returns qwen3 for a model with QK-norm (qwen3_moe if there are experts) and llama for
/// a model without QK-norm.
std::string hf_family(const model::ModelConfig& config, std::string_view wanted = "");

/// Returns why the shape fits no family ("router_score = sigmoid, ..."); "" if it fits one.
std::string hf_family_problem(const model::ModelConfig& config);

/// Returns the config.json of the family hf_family(config, wanted_family), with the keys of
/// transformers 4 and 5. The shape must fit a family.
std::string hf_config_text(const model::ModelConfig& config, DType dtype,
                           const SpecialTokenIds& special_ids, std::string_view wanted_family = "");

/// Reads the shape from a config.json of model_type qwen3, qwen3_moe, llama or mistral. Throws
/// Error(data) naming every setting that is not supported: an attention window that is smaller than
/// the maximum number of positions, rope scaling other than yarn and llama3, biases, experts in
/// every second layer, other activations, other architectures.
model::ModelConfig model_from_hf(const Json& config, std::string_view where);

}  // namespace trireme::checkpoint
