#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/exchange/import_weights.hpp"
#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/hf/hf_family.hpp"

/// Converts the tensors of a model between the names and shapes of hf_tensors and those of a
/// family's files: other names, several linears in one tensor, norms with an offset.
/// With a partial rotary embedding, the rows of queries and keys have another order
/// (partial_rotary_row).
namespace trireme::checkpoint {

/// Returns the name in the files of a family for a name of hf_tensors. A fused linear has the name
/// of the whole linear.
std::string family_tensor_name(const Family& family, std::string name);

/// Returns the tensors of a file by the names of hf_tensors. Other tensors stay. Throws Error(data)
/// naming every fused tensor that is missing and every tensor with a wrong shape.
WeightSource from_family(const Family& family, const model::ModelConfig& config,
                         WeightSource weights, const std::string& where);

/// Returns the tensors of an export in `dtype`. `weights(dtype)` returns them with the names of
/// hf_tensors.
std::vector<SafetensorsSource> to_family(
    const Family& family, const model::ModelConfig& config, DType dtype,
    const std::function<std::vector<SafetensorsSource>(DType)>& weights);

/// Returns why adapters cannot be exchanged as PEFT directories with models of this family (null:
/// no family); "" if they can.
std::string hf_adapter_problem(const Family* family, const model::ModelConfig& config);

}  // namespace trireme::checkpoint
