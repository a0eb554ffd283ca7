#pragma once
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/gguf/gguf_file.hpp"
#include "model/config.hpp"

/// The architectures of llama.cpp as data: which options of a model each one computes, its keys
/// and its tensors. Sources: llama.cpp (src/llama-model.cpp, convert_hf_to_gguf.py) and the PyPI
/// package gguf 0.19 (constants.py).
namespace trireme::checkpoint {

struct GgufArchitecture {
  std::string_view name;
  /// Options that must have these values; other options must have their default.
  std::vector<std::pair<std::string_view, std::string_view>> required;
  std::vector<std::string_view> free{};  // options that may have any value
  bool experts = false;                  // can be a mixture of experts
  bool needs_experts = false;
  bool pairs_neighbours = false;   // rotates elements 2i and 2i + 1, not i and i + head_dim / 2
  bool frequency_factors = false;  // can divide each rotary frequency by a number (rope_freqs)
};

/// Returns the architecture that computes the same as the model. Throws Error(usage), beginning
/// with `where`, that names the options that no architecture computes.
const GgufArchitecture& gguf_architecture(const model::ModelConfig& config,
                                          const std::string& where);

/// Adds the keys of the shape.
void put_gguf_shape(const model::ModelConfig& config, const GgufArchitecture& architecture,
                    GgufValues& values);

/// Returns the tensors of the file. Vectors, routers and tensors with rows that are not a
/// multiple of 32 are not quantized: vectors and routers have f32, other tensors f16. `weights`
/// returns the tensors of the model (whole_weights) in a dtype.
std::vector<GgufTensor> gguf_tensors(
    const model::ModelConfig& config, const GgufArchitecture& architecture, GgufType type,
    const std::function<std::vector<SafetensorsSource>(DType)>& weights);

}  // namespace trireme::checkpoint
