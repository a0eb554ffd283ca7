#include <ATen/ATen.h>

#include "parallel/collectives.hpp"
#include "parallel/context/forms.hpp"

namespace trireme::parallel::context {
namespace {

struct KeysOfAll {
  at::Tensor k;  // [B, Hk, T, D], positions in rank order
  at::Tensor v;
};

/// Converts [c, B, Hk, T / c, D] to [B, Hk, T, D].
at::Tensor join_ranks(const at::Tensor& x) {
  return x.permute({1, 2, 0, 3, 4}).flatten(2, 3);
}

KeysOfAll gather_keys(const at::Tensor& k, const at::Tensor& v, comm::Communicator& group) {
  const at::Tensor own = at::stack({k, v}).contiguous();  // [2, B, Hk, T / c, D]
  auto shape = own.sizes().vec();
  shape.insert(shape.begin(), group.size());
  const at::Tensor all = at::empty(shape, own.options());
  all_gather(group, own, all, "context keys")->wait();
  return {join_ranks(all.select(1, 0)), join_ranks(all.select(1, 1))};
}

/// Sums the gradients of all keys and values, [B, Hk, T, D] each, over the ranks. Returns the sums
/// at this rank's positions, [2, B, Hk, T / c, D].
at::Tensor scatter_gradients(const at::Tensor& k, const at::Tensor& v, comm::Communicator& group) {
  const at::Tensor all = at::stack({k, v})
                             .unflatten(3, {group.size(), -1})
                             .permute({3, 0, 1, 2, 4, 5})
                             .contiguous();  // [c, 2, B, Hk, T / c, D]
  at::Tensor own = at::empty(all.sizes().slice(1), all.options());
  reduce_scatter(group, all, own, "context key gradients")->wait();
  return own;
}

}  // namespace

ContextResult all_gather_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const ContextCall& call) {
  const KeysOfAll keys = gather_keys(k, v, *call.group);
  const auto setup = call.attention(call.own_positions(), all_positions(call.setup), false);
  const auto attended = ops::attention_forward(q, keys.k, keys.v, setup, call.path);
  return {attended.out, {q, k, v, attended}};
}

ops::AttentionGrads all_gather_backward(const at::Tensor& grad_out, const ContextSaved& saved,
                                        const ContextCall& call) {
  // Gather again to save memory: between forward and backward, a rank stores only its T / c keys
  // and values per layer.
  const KeysOfAll keys = gather_keys(saved.k, saved.v, *call.group);
  const auto setup = call.attention(call.own_positions(), all_positions(call.setup), /*wide=*/true);
  const auto grads =
      ops::attention_backward(grad_out, saved.q, keys.k, keys.v, saved.attended, setup, call.path);
  const at::Tensor own = scatter_gradients(grads.k, grads.v, *call.group);
  const auto type = saved.q.scalar_type();
  return {grads.q.to(type), own[0].to(type), own[1].to(type)};
}

}  // namespace trireme::parallel::context
