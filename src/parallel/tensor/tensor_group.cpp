#include "parallel/tensor/tensor_group.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/error.hpp"
#include "parallel/collectives.hpp"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr const char* kPurpose = "activations";

/// The group as a graph keeps it: it outlives every graph over it.
void keep(AutogradContext* ctx, const TensorGroup* group) {
  ctx->saved_data["group"] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(group));
}

const TensorGroup& kept(AutogradContext* ctx) {
  return *reinterpret_cast<const TensorGroup*>(
      static_cast<std::intptr_t>(ctx->saved_data["group"].toInt()));
}

struct Enter : torch::autograd::Function<Enter> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const TensorGroup* group) {
    keep(ctx, group);
    const at::Tensor whole = group->whole(x);
    return whole.is_same(x) ? x.view_as(x) : whole;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {kept(ctx).sum(grads[0]), {}};
  }
};

struct Leave : torch::autograd::Function<Leave> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const TensorGroup* group) {
    keep(ctx, group);
    return group->sum(y);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {kept(ctx).whole(grads[0]), {}};
  }
};

}  // namespace

at::Tensor TensorGroup::enter(const at::Tensor& x) const {
  return size() == 1 ? x : Enter::apply(x, this);
}

at::Tensor TensorGroup::leave(const at::Tensor& y) const {
  return size() == 1 ? y : Leave::apply(y, this);
}

at::Tensor TensorGroup::whole(const at::Tensor& x) const {
  if (!sequence_parallel_) return x;
  const at::Tensor mine = x.contiguous();  // [B, T / t, D]
  at::Tensor parts = at::empty({size(), mine.size(0), mine.size(1), mine.size(2)}, mine.options());
  all_gather(*group_, mine, parts, kPurpose)->wait();
  return parts.transpose(0, 1).reshape({mine.size(0), -1, mine.size(2)});
}

at::Tensor TensorGroup::sum(const at::Tensor& y) const {
  if (size() == 1) return y;
  at::Tensor sum;
  if (!sequence_parallel_) {
    sum = y.clone(at::MemoryFormat::Contiguous);
    all_reduce(*group_, sum, ReduceOp::sum, kPurpose)->wait();
    return sum;
  }
  TRIREME_ASSERT(y.size(1) % size() == 0);
  const at::Tensor parts =  // [t, B, T / t, D]
      y.reshape({y.size(0), size(), y.size(1) / size(), y.size(2)}).transpose(0, 1).contiguous();
  sum = at::empty(parts.sizes().slice(1), parts.options());
  reduce_scatter(*group_, parts, sum, kPurpose)->wait();
  return sum;
}

at::Tensor TensorGroup::own_tokens(const at::Tensor& per_token) const {
  if (!sequence_parallel_) return per_token;
  const std::int64_t length = per_token.size(1) / size();
  return per_token.narrow(1, length * rank(), length).contiguous();
}

std::vector<IndexRange> token_pieces(std::int64_t tokens, std::int64_t chunks) {
  const auto count = static_cast<int>(std::clamp<std::int64_t>(tokens, 1, chunks));
  std::vector<IndexRange> pieces;
  for (int i = 0; i < count; ++i) pieces.push_back(split_range(tokens, {}, count, i));
  return pieces;
}

}  // namespace trireme
