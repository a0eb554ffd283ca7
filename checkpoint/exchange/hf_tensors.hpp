#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/config.hpp"

/// The tensors of a model by name. A checkpoint has the experts of a layer stacked, as they are
/// trained; Hugging Face folders have a tensor of each, or (transformers 5 saves some so) the same
/// stacks with gate and up in one dimension.
namespace trireme {

struct NamedShape {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;
};

/// Every parameter as a checkpoint holds it, in the order of the forward pass; lm_head.weight only
/// when not tied.
std::vector<NamedShape> model_tensors(const ModelConfig& config);

/// A tensor of a Hugging Face folder, and the parameter that has its elements from `begin` on.
struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string parameter;
  std::int64_t begin = 0;

  [[nodiscard]] bool is_part() const { return name != parameter; }
};

/// The same in a Hugging Face folder, each expert by itself.
std::vector<HfTensor> hf_tensors(const ModelConfig& config);

/// Of a parameter of stacked experts, its shape in a Hugging Face folder: gate and up one below another.
std::vector<std::int64_t> hf_stack_shape(const std::vector<std::int64_t>& shape);

}  // namespace trireme
