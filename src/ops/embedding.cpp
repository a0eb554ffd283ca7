#include "ops/embedding.hpp"

#include <ATen/ATen.h>

#include <array>

#include "core/operation_record.hpp"
#include "ops/cuda/embedding.hpp"
#include "ops/operations.hpp"

namespace trireme::ops {
namespace {

void plain_embedding_gradient(const at::Tensor& table, const at::Tensor& index,
                              const at::Tensor& grads) {
  at::Tensor sums = table;
  sums.index_add_(0, index, grads.to(table.scalar_type()));
}

struct EmbeddingRow {
  bool (*accepts)(const at::Tensor& table, const at::Tensor& grads);
  decltype(&plain_embedding_gradient) add;
};

constexpr std::array kEmbedding{
    EmbeddingRow{cuda::accepts_embedding, cuda::add_embedding_gradient},
    EmbeddingRow{nullptr, plain_embedding_gradient},
};

}  // namespace

void add_embedding_gradient(const at::Tensor& table, const at::Tensor& index,
                            const at::Tensor& grads, Path path) {
  const OperationMark mark(StepWork::embedding);
  choose(path_of(Operation::embedding, path), kEmbedding, table, grads).add(table, index, grads);
}

}  // namespace trireme::ops
