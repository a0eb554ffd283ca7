#include "parallel/tensor/token_products.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.hpp"
#include "core/operation_record.hpp"
#include "ops/product.hpp"
#include "parallel/collectives.hpp"

namespace trireme::parallel {
namespace {

constexpr const char* kTokensPurpose = "activations";

/// Views tokens [B, T, D] by rank: [B, t, T / t, D].
at::Tensor by_rank(const at::Tensor& tokens, const TensorGroup& group) {
  TRIREME_ASSERT(tokens.size(1) % group.size() == 0);
  return tokens.view({tokens.size(0), group.size(), tokens.size(1) / group.size(), tokens.size(2)});
}

/// Returns one rank's tokens in a chunk: [B, n, D].
at::Tensor of_rank(const at::Tensor& by_rank, int rank, const IndexRange& chunk) {
  return by_rank.select(1, rank).narrow(1, chunk.begin, chunk.count());
}

/// Computes result [B, n, out] = tokens [B, n, in] times matrix [in, out].
void multiply(at::Tensor result, const at::Tensor& tokens, const at::Tensor& matrix) {
  if (ops::widens_products(tokens)) {
    result.copy_(ops::product(tokens, matrix));
  } else {
    const ProductMark mark(StepWork::matmul_forward, 2.0 * static_cast<double>(tokens.numel()) *
                                                         static_cast<double>(matrix.size(1)));
    at::bmm_out(result, tokens, matrix.expand({tokens.size(0), -1, -1}));
  }
}

/// Returns y [.., in] times matrix [in, out], added to `onto` if it is defined.
at::Tensor product_onto(const at::Tensor& onto, const at::Tensor& y, const at::Tensor& matrix) {
  if (!onto.defined()) return ops::product(y, matrix);
  ops::add_product(y.reshape({-1, y.size(-1)}), matrix, onto.view({-1, onto.size(-1)}));
  return onto;
}

/// A pending all-gather of one chunk of every rank's tokens.
struct Gather {
  at::Tensor mine;     // [B, n, D]
  at::Tensor parts;    // [t, B, n, D]
  comm::WorkPtr work;  // destroyed first
};

Gather begin_gather(const TensorGroup& group, const at::Tensor& x, const IndexRange& chunk) {
  Gather gather;
  gather.mine = x.narrow(1, chunk.begin, chunk.count()).contiguous();
  gather.parts = at::empty({group.size(), x.size(0), chunk.count(), x.size(2)}, x.options());
  gather.work = all_gather(group.group(), gather.mine, gather.parts, kTokensPurpose);
  return gather;
}

}  // namespace

WholeAndProduct whole_and_product(const TensorGroup& group, const at::Tensor& x,
                                  const at::Tensor& matrix) {
  if (!group.sequence_parallel() || group.chunks() == 1) {
    const at::Tensor whole = group.whole(x);
    return {whole, ops::product(whole, matrix)};
  }
  const std::int64_t tokens = x.size(1) * group.size();
  const at::Tensor whole = at::empty({x.size(0), tokens, x.size(2)}, x.options());
  const at::Tensor product = at::empty({x.size(0), tokens, matrix.size(1)}, x.options());
  const at::Tensor whole_of = by_rank(whole, group);
  const at::Tensor product_of = by_rank(product, group);
  const std::vector<IndexRange> chunks = token_chunks(x.size(1), group.chunks());
  Gather next = begin_gather(group, x, chunks.front());
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    Gather arrived = std::move(next);
    arrived.work->wait();
    if (i + 1 < chunks.size()) next = begin_gather(group, x, chunks[i + 1]);
    for (int rank = 0; rank < group.size(); ++rank) {
      const at::Tensor here = of_rank(whole_of, rank, chunks[i]);
      here.copy_(arrived.parts[rank]);
      multiply(of_rank(product_of, rank, chunks[i]), here, matrix);
      if (next.work) next.work->poll();
    }
  }
  return {whole, product};
}

ProductSum::ProductSum(const TensorGroup& group, const at::Tensor& y, const at::Tensor& matrix,
                       const at::Tensor& onto) {
  if (group.size() == 1) {
    sum_ = product_onto(onto, y, matrix);
  } else if (group.sequence_parallel()) {
    scatter_tokens(group, y, matrix, onto);
  } else {
    sum_tokens(group, y, matrix, onto);
  }
}

ProductSum::ProductSum(const TensorGroup& group, const at::Tensor& product) {
  if (group.size() == 1) {
    sum_ = product;
  } else if (group.sequence_parallel()) {
    scatter_product(group, product);
  } else {
    sum_product(group, product);
  }
}

void ProductSum::sum_product(const TensorGroup& group, const at::Tensor& product) {
  sum_ = product.contiguous();
  chunks_.push_back(
      {{}, sum_, {}, all_reduce(group.group(), sum_, comm::ReduceOp::sum, kTokensPurpose)});
}

void ProductSum::scatter_product(const TensorGroup& group, const at::Tensor& product) {
  Chunk chunk;
  chunk.sent = by_rank(product, group).transpose(0, 1).contiguous();
  sum_ = at::empty({product.size(0), chunk.sent.size(2), product.size(2)}, product.options());
  chunk.received = sum_;
  chunk.place = sum_;
  chunk.work = reduce_scatter(group.group(), chunk.sent, sum_, kTokensPurpose);
  chunks_.push_back(std::move(chunk));
}

void ProductSum::sum_tokens(const TensorGroup& group, const at::Tensor& y, const at::Tensor& matrix,
                            const at::Tensor& onto) {
  if (group.chunks() == 1) {
    sum_product(group, product_onto(onto, y, matrix));
    return;
  }
  sum_ = onto.defined() ? onto : at::empty({y.size(0), y.size(1), matrix.size(1)}, y.options());
  const at::Tensor from = y.reshape({-1, y.size(2)});
  const at::Tensor to = sum_.view({-1, matrix.size(1)});
  for (const IndexRange& range : token_chunks(from.size(0), group.chunks())) {
    const at::Tensor chunk = to.narrow(0, range.begin, range.count());
    const at::Tensor rows = from.narrow(0, range.begin, range.count());
    if (onto.defined()) {
      ops::add_product(rows, matrix, chunk);
    } else {
      ops::put_product(rows, matrix, chunk);
    }
    poll();
    chunks_.push_back(
        {{}, chunk, {}, all_reduce(group.group(), chunk, comm::ReduceOp::sum, kTokensPurpose)});
  }
}

void ProductSum::scatter_tokens(const TensorGroup& group, const at::Tensor& y,
                                const at::Tensor& matrix, const at::Tensor& onto) {
  if (group.chunks() == 1) {
    scatter_product(group, product_onto(onto, y, matrix));
    return;
  }
  const at::Tensor from = by_rank(y, group);
  const std::int64_t own = from.size(2);
  sum_ = at::empty({y.size(0), own, matrix.size(1)}, y.options());
  for (const IndexRange& range : token_chunks(own, group.chunks())) {
    Chunk chunk;
    chunk.sent = at::empty({group.size(), y.size(0), range.count(), matrix.size(1)}, y.options());
    for (int rank = 0; rank < group.size(); ++rank) {
      multiply(chunk.sent[rank], of_rank(from, rank, range), matrix);
      if (onto.defined()) chunk.sent[rank].add_(of_rank(by_rank(onto, group), rank, range));
      poll();
    }
    chunk.place = sum_.narrow(1, range.begin, range.count());
    chunk.received = chunk.place.is_contiguous()
                         ? chunk.place
                         : at::empty_like(chunk.place, at::MemoryFormat::Contiguous);
    chunk.work = reduce_scatter(group.group(), chunk.sent, chunk.received, kTokensPurpose);
    chunks_.push_back(std::move(chunk));
  }
}

void ProductSum::poll() {
  if (!chunks_.empty()) chunks_.back().work->poll();
}

at::Tensor ProductSum::wait() {
  for (Chunk& chunk : chunks_) {
    chunk.work->wait();
    if (chunk.place.defined() && !chunk.place.is_same(chunk.received))
      chunk.place.copy_(chunk.received);
  }
  chunks_.clear();
  return std::move(sum_);
}

}  // namespace trireme::parallel
