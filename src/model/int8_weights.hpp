#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ops/int8_linear.hpp"
#include "parallel/param_registry.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme::model {

/// The matrices of a model that inference reads as int8.
class Int8Weights {
 public:
  /// Rounds weights of the registry to int8 and stores the rounded values in the registry, too. If
  /// ranks of `tensor` divide the columns of a weight, this is collective: the scales are those of
  /// the whole rows.
  void add(parallel::ParamRegistry& registry, const std::vector<parallel::WeightRef>& refs,
           const parallel::TensorGroup& tensor);

  /// Returns the matrix of the weight that begins with parameter `first`; null if it has none.
  [[nodiscard]] const ops::Int8Matrix* find(parallel::ParamId first) const {
    const auto found = matrices_.find(first);
    return found == matrices_.end() ? nullptr : &found->second;
  }

  /// Computes x W^T for inference, from int8 if the weight was added.
  [[nodiscard]] at::Tensor product(const at::Tensor& x, parallel::ParamRegistry& registry,
                                   parallel::WeightRef ref, ops::Path path) const;

  /// Like product(), with the matrix of one expert.
  [[nodiscard]] at::Tensor expert_product(const at::Tensor& x, parallel::ParamRegistry& registry,
                                          parallel::ParamId id, std::int64_t expert,
                                          ops::Path path) const;

 private:
  std::unordered_map<parallel::ParamId, ops::Int8Matrix> matrices_;
};

}  // namespace trireme::model
