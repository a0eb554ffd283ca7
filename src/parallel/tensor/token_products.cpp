#include "parallel/tensor/token_products.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.hpp"
#include "ops/product.hpp"
#include "parallel/collectives.hpp"

namespace trireme {
namespace {

constexpr const char* kTokensPurpose = "activations";

/// Views tokens [B, T, D] by rank: [B, t, T / t, D].
at::Tensor by_rank(const at::Tensor& tokens, const TensorGroup& group) {
  TRIREME_ASSERT(tokens.size(1) % group.size() == 0);
  return tokens.view({tokens.size(0), group.size(), tokens.size(1) / group.size(), tokens.size(2)});
}

/// Returns one rank's tokens in a chunk: [B, n, D].
at::Tensor of_rank(const at::Tensor& by_rank, int rank, const IndexRange& piece) {
  return by_rank.select(1, rank).narrow(1, piece.begin, piece.count());
}

/// Computes result [B, n, out] = tokens [B, n, in] times matrix [in, out].
void multiply(at::Tensor result, const at::Tensor& tokens, const at::Tensor& matrix) {
  if (ops::widens_products(tokens)) {
    result.copy_(ops::product(tokens, matrix));
  } else {
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
  at::Tensor mine;   // [B, n, D]
  at::Tensor parts;  // [t, B, n, D]
  WorkPtr work;      // destroyed first
};

Gather begin_gather(const TensorGroup& group, const at::Tensor& x, const IndexRange& piece) {
  Gather gather;
  gather.mine = x.narrow(1, piece.begin, piece.count()).contiguous();
  gather.parts = at::empty({group.size(), x.size(0), piece.count(), x.size(2)}, x.options());
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
  const std::vector<IndexRange> pieces = token_pieces(x.size(1), group.chunks());
  Gather next = begin_gather(group, x, pieces.front());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Gather arrived = std::move(next);
    arrived.work->wait();
    if (i + 1 < pieces.size()) next = begin_gather(group, x, pieces[i + 1]);
    for (int rank = 0; rank < group.size(); ++rank) {
      const at::Tensor here = of_rank(whole_of, rank, pieces[i]);
      here.copy_(arrived.parts[rank]);
      multiply(of_rank(product_of, rank, pieces[i]), here, matrix);
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

void ProductSum::sum_tokens(const TensorGroup& group, const at::Tensor& y, const at::Tensor& matrix,
                            const at::Tensor& onto) {
  if (group.chunks() == 1) {
    sum_ = product_onto(onto, y, matrix).contiguous();
    pieces_.push_back(
        {{}, sum_, {}, all_reduce(group.group(), sum_, ReduceOp::sum, kTokensPurpose)});
    return;
  }
  sum_ = onto.defined() ? onto : at::empty({y.size(0), y.size(1), matrix.size(1)}, y.options());
  const at::Tensor from = y.reshape({-1, y.size(2)});
  const at::Tensor to = sum_.view({-1, matrix.size(1)});
  for (const IndexRange& range : token_pieces(from.size(0), group.chunks())) {
    const at::Tensor piece = to.narrow(0, range.begin, range.count());
    const at::Tensor rows = from.narrow(0, range.begin, range.count());
    if (onto.defined()) {
      ops::add_product(rows, matrix, piece);
    } else {
      ops::put_product(rows, matrix, piece);
    }
    poll();
    pieces_.push_back(
        {{}, piece, {}, all_reduce(group.group(), piece, ReduceOp::sum, kTokensPurpose)});
  }
}

void ProductSum::scatter_tokens(const TensorGroup& group, const at::Tensor& y,
                                const at::Tensor& matrix, const at::Tensor& onto) {
  const at::Tensor from = by_rank(y, group);
  const std::int64_t own = from.size(2);
  sum_ = at::empty({y.size(0), own, matrix.size(1)}, y.options());
  for (const IndexRange& range : token_pieces(own, group.chunks())) {
    Piece piece;
    if (group.chunks() == 1) {
      piece.sent = by_rank(product_onto(onto, y, matrix), group).transpose(0, 1).contiguous();
    } else {
      piece.sent = at::empty({group.size(), y.size(0), range.count(), matrix.size(1)}, y.options());
      for (int rank = 0; rank < group.size(); ++rank) {
        multiply(piece.sent[rank], of_rank(from, rank, range), matrix);
        if (onto.defined()) piece.sent[rank].add_(of_rank(by_rank(onto, group), rank, range));
        poll();
      }
    }
    piece.place = sum_.narrow(1, range.begin, range.count());
    piece.received = piece.place.is_contiguous()
                         ? piece.place
                         : at::empty_like(piece.place, at::MemoryFormat::Contiguous);
    piece.work = reduce_scatter(group.group(), piece.sent, piece.received, kTokensPurpose);
    pieces_.push_back(std::move(piece));
  }
}

void ProductSum::poll() {
  if (!pieces_.empty()) pieces_.back().work->poll();
}

at::Tensor ProductSum::wait() {
  for (Piece& piece : pieces_) {
    piece.work->wait();
    if (piece.place.defined() && !piece.place.is_same(piece.received))
      piece.place.copy_(piece.received);
  }
  pieces_.clear();
  return std::move(sum_);
}

}  // namespace trireme
