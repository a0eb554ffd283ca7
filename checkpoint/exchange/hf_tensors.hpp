#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/config.hpp"

/// Lists the tensors of a model by name. A checkpoint stores the experts of a layer stacked, as
/// they are trained. A Hugging Face directory stores one tensor per expert, or (some models of
/// transformers 5) the same stacks with gate and up in one dimension.
namespace trireme::checkpoint {

struct NamedShape {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;
};

/// Returns every parameter as a checkpoint stores it, in the order of the forward pass.
/// lm_head.weight is included only if it is not tied.
std::vector<NamedShape> model_tensors(const model::ModelConfig& config);

/// Returns the number of elements of each tensor.
std::vector<std::uint64_t> num_elements(const std::vector<NamedShape>& tensors);

/// A tensor of a Hugging Face directory. `begin` is the first element in `parameter` that it fills.
struct HfTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string parameter;
  std::int64_t begin = 0;

  [[nodiscard]] bool is_part() const { return name != parameter; }
};

/// Returns the tensors of a Hugging Face directory, one per expert.
std::vector<HfTensor> hf_tensors(const model::ModelConfig& config);

/// Returns the Hugging Face shape of stacked experts: gate and up are concatenated in one
/// dimension.
std::vector<std::int64_t> hf_stack_shape(const std::vector<std::int64_t>& shape);

}  // namespace trireme::checkpoint
