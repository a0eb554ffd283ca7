#include "model/int8_weights.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "model/transformer.hpp"
#include "ops/linear.hpp"

namespace trireme::model {

void Int8Weights::add(parallel::ParamRegistry& registry, parallel::WeightRef ref) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = registry.weight(ref);
  ops::Int8Matrix matrix = ops::to_int8(weight);
  weight.copy_(ops::from_int8(matrix, weight.scalar_type()));
  matrices_.insert_or_assign(ref.first, std::move(matrix));
}

at::Tensor Int8Weights::product(const at::Tensor& x, parallel::ParamRegistry& registry,
                                parallel::WeightRef ref, ops::Path path) const {
  if (const ops::Int8Matrix* matrix = find(ref.first))
    return ops::inference_linear(x, *matrix, path);
  return ops::inference_linear(x, registry.weight(ref), path);
}

at::Tensor Int8Weights::expert_product(const at::Tensor& x, parallel::ParamRegistry& registry,
                                       parallel::ParamId id, std::int64_t expert,
                                       ops::Path path) const {
  if (const ops::Int8Matrix* matrix = find(id))
    return ops::inference_linear(x, matrix->at_index(expert), path);
  return ops::inference_linear(x, registry.weight(id)[expert].flatten(0, -2), path);
}

void Transformer::use_int8_weights() {
  TRIREME_ASSERT(stages_.size() == 1 && has_head() && context_.tensor.size() == 1);
  for (const auto& block : blocks_) {
    for (const parallel::WeightRef ref : block->linears()) context_.int8.add(registry_, ref);
  }
  context_.int8.add(registry_, {head_});
}

}  // namespace trireme::model
