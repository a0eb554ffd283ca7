#include "model/int8_weights.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "device/own_pages.hpp"
#include "model/transformer.hpp"
#include "ops/linear.hpp"
#include "parallel/collectives.hpp"

namespace trireme::model {
namespace {

/// Returns true if each rank of tp has some columns (input channels) of this weight.
bool has_split_rows(const parallel::ParamSpec& spec) {
  return spec.split && static_cast<std::size_t>(spec.split->dim) + 1 == spec.shape.size();
}

/// Rounds a weight of the registry. If ranks of `tensor` divide its columns, this is collective.
ops::Int8Matrix rounded(parallel::ParamRegistry& registry, parallel::WeightRef ref,
                        const parallel::TensorGroup& tensor) {
  const at::Tensor weight = registry.weight(ref);
  const at::Tensor maxima = ops::row_maxima(weight).contiguous();
  if (tensor.size() > 1 && has_split_rows(registry.spec(ref.first)))
    parallel::all_reduce(tensor.group(), maxima, comm::ReduceOp::max, "int8 scales")->wait();
  ops::Int8Matrix matrix = ops::to_int8(weight, maxima);
  weight.copy_(ops::from_int8(matrix, weight.scalar_type()));
  return matrix;
}

}  // namespace

void Int8Weights::add(parallel::ParamRegistry& registry,
                      const std::vector<parallel::WeightRef>& refs,
                      const parallel::TensorGroup& tensor) {
  constexpr std::int64_t kAlign = 64;
  const at::NoGradGuard no_grad;
  const auto numbers_of = [&](parallel::WeightRef ref) {
    return (registry.weight(ref).numel() + kAlign - 1) / kAlign * kAlign;
  };
  std::int64_t count = 0;
  for (const parallel::WeightRef ref : refs) count += numbers_of(ref);
  // A step reads all matrices, which is faster from huge pages.
  const at::Tensor pages = device::own_pages(count, at::dtype(at::kChar));
  std::int64_t first = 0;
  for (const parallel::WeightRef ref : refs) {
    ops::Int8Matrix matrix = rounded(registry, ref, tensor);
    const at::Tensor place = pages.narrow(0, first, matrix.values.numel());
    matrix.values = place.view(matrix.values.sizes()).copy_(matrix.values);
    matrices_.insert_or_assign(ref.first, std::move(matrix));
    first += numbers_of(ref);
  }
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
  TRIREME_ASSERT(stages_.size() == 1);
  std::vector<parallel::WeightRef> refs;
  for (const auto& block : blocks_) {
    const std::vector<parallel::WeightRef> linears = block->linears();
    refs.insert(refs.end(), linears.begin(), linears.end());
  }
  if (has_head()) refs.push_back({head_});
  context_.int8.add(registry_, refs, context_.tensor);
  if (has_head()) return;
  if (stages_.front().has_embedding && context_.config.tie_embeddings) {
    const at::Tensor table = registry_.weight(embedding_);  // the head is on the last stage
    table.copy_(ops::from_int8(ops::to_int8(table), table.scalar_type()));
  }
}

}  // namespace trireme::model
