#pragma once
#include <functional>
#include <vector>

#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/gguf/gguf_architecture.hpp"
#include "checkpoint/gguf/gguf_file.hpp"

namespace trireme::checkpoint {

/// Returns the tensors of the file. Vectors, routers and tensors with rows that are not a
/// multiple of 32 are not quantized: vectors, routers and tables of positions have f32, other
/// tensors f16. `weights` returns the tensors of the model (whole_weights) in a dtype.
std::vector<GgufTensor> gguf_tensors(
    const model::ModelConfig& config, const GgufArchitecture& architecture, GgufType type,
    const std::function<std::vector<SafetensorsSource>(DType)>& weights);

}  // namespace trireme::checkpoint
