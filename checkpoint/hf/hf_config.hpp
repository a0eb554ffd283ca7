#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/exchange/special_tokens.hpp"
#include "core/dtype.hpp"
#include "core/files/json.hpp"
#include "model/config.hpp"

namespace trireme::checkpoint {

struct Family;

}  // namespace trireme::checkpoint

/// Converts between ModelConfig and config.json of a Hugging Face directory.
/// hf_family.hpp describes the families.
namespace trireme::checkpoint {

/// Returns the family of an export: the one with model_type `wanted` if it can express the model,
/// else the first one that can. A family can express a model if its config.json reads back as the
/// same model.
const Family& hf_family(const model::ModelConfig& config, std::string_view wanted = "");

/// Returns the values of the model that config.json of the family cannot hold; empty if the family
/// can express the model, null if its config.json cannot be read back.
std::optional<std::vector<std::string>> family_differences(const model::ModelConfig& config,
                                                           const Family& family);

/// Like hf_family, but returns null if no family can express the model.
const Family* fitting_family(const model::ModelConfig& config, std::string_view wanted);

/// Returns the values that no family can express together ("model.qk_norm = true together with
/// model.mlp_bias = true"); "" if a family can express the model. Without any of these values, the
/// others do not block the export. Implemented in hf_blocking.cpp.
std::string hf_family_problem(const model::ModelConfig& config);

/// Returns the config.json of the family hf_family(config, wanted_family), with the keys of
/// transformers 4 and 5. The shape must fit a family.
std::string hf_config_text(const model::ModelConfig& config, DType dtype,
                           const SpecialTokenIds& special_ids, std::string_view wanted_family = "");

/// Returns the values of `config` that differ in `read`, the model that was read from its exported
/// config.json: "model.qk_norm = true". Values that config.json cannot hold do not count.
std::vector<std::string> hf_differences(const model::ModelConfig& config,
                                        const model::ModelConfig& read);

/// Reads the shape from a config.json of a supported model_type. Throws Error(data) naming every
/// setting that is not supported by the family, and for other architectures. A model with longrope
/// gets the original length as max_seq_len.
model::ModelConfig model_from_hf(const Json& config, std::string_view where);

/// Returns the keys that have a value, are not read by the family, and are not known to leave the
/// logits unchanged, in the order of the file. Throws like model_from_hf.
std::vector<std::string> hf_unknown_keys(const Json& config, std::string_view where);

}  // namespace trireme::checkpoint
