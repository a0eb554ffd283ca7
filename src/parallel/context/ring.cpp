#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <utility>

#include "parallel/context/forms.hpp"
#include "parallel/torch_bridge.hpp"

namespace trireme::context {
namespace {

/// A tensor on its way: out goes to the next rank while in comes from the one before.
class Travel {
 public:
  Travel(at::Tensor out, Communicator& group, std::string_view tag)
      : out_(std::move(out)), in_(at::empty_like(out_)) {
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    const Message send{next, out_.data_ptr(), out_.nbytes()};
    const Message receive{before, in_.data_ptr(), in_.nbytes()};
    work_ = group.exchange({.sends = {&send, 1},
                            .receives = {&receive, 1},
                            .stream = current_stream(out_.device()),
                            .tag = tag});
  }

  /// Waits for both.
  at::Tensor arrived() {
    work_->wait();
    return in_;
  }

 private:
  at::Tensor out_;
  at::Tensor in_;
  WorkPtr work_;  // destroyed first: it may still read and write the tensors
};

/// What the queries here see of the block of `owner`.
ops::AttentionSetup block_setup(const ContextCall& call, int owner) {
  return call.attention(call.own_places(), call.setup.places[static_cast<std::size_t>(owner)],
                        /*wide=*/true);
}

bool is_seen(const ops::AttentionSetup& setup, const at::Tensor& q) {
  return !ops::sees_nothing(ops::plan_attention(setup, q.size(0), q.size(2), q.size(2)));
}

/// The rank whose block is here after `step` transfers.
int owner_at(int step, const Communicator& group) {
  return (group.rank() - step + group.size()) % group.size();
}

ops::AttentionOutput nothing_seen(const at::Tensor& q) {
  const auto options = q.options().dtype(ops::accumulate_type(q));
  return {at::zeros({q.size(0), q.size(2), q.size(1), q.size(3)}, options).transpose(1, 2),
          at::full({q.size(0), q.size(1), q.size(2)}, -std::numeric_limits<double>::infinity(),
                   options)};
}

}  // namespace

ContextResult ring_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const ContextCall& call) {
  Communicator& group = *call.group;
  at::Tensor held = at::stack({k, v}).contiguous();  // [2, B, Hk, T / c, D]
  ops::AttentionOutput sum;
  for (int step = 0; step < group.size(); ++step) {
    std::optional<Travel> next;
    if (step + 1 < group.size()) next.emplace(held, group, "context keys");
    const auto setup = block_setup(call, owner_at(step, group));
    if (is_seen(setup, q)) {
      const auto part = ops::attention_forward(q, held[0], held[1], setup, call.path);
      if (sum.out.defined()) {
        ops::merge_attention(sum, part);
      } else {
        sum = part;
      }
    }
    if (next) held = next->arrived();
  }
  if (!sum.out.defined()) sum = nothing_seen(q);
  const at::Tensor out = sum.out.to(q.scalar_type());
  return {out, {q, k, v, {out, sum.lse}}};
}

ops::AttentionGrads ring_backward(const at::Tensor& grad_out, const ContextSaved& saved,
                                  const ContextCall& call) {
  Communicator& group = *call.group;
  const at::Tensor& q = saved.q;
  at::Tensor held = at::stack({saved.k, saved.v}).contiguous();  // [2, B, Hk, T / c, D]
  const auto type = ops::accumulate_type(q);
  at::Tensor grad_q = at::zeros(q.sizes(), q.options().dtype(type));
  at::Tensor home;  // gradients of this rank's block
  std::optional<Travel> next;
  std::optional<Travel> sums;  // of the block that is here next
  for (int step = 0; step < group.size(); ++step) {
    if (step + 1 < group.size()) next.emplace(held, group, "context keys");
    const auto setup = block_setup(call, owner_at(step, group));
    at::Tensor block;  // [2, B, Hk, T / c, D]
    if (is_seen(setup, q)) {
      const auto grads =
          ops::attention_backward(grad_out, q, held[0], held[1], saved.attended, setup, call.path);
      grad_q.add_(grads.q);
      block = at::stack({grads.k, grads.v});
    } else {
      block = at::zeros(held.sizes(), held.options().dtype(type));
    }
    if (step == 0) {
      home = block;
    } else {
      if (sums) block.add_(sums->arrived());
      sums.emplace(block, group, "context key gradients");
    }
    if (step + 1 < group.size()) held = next->arrived();
  }
  if (sums) home.add_(sums->arrived());
  return {grad_q.to(q.scalar_type()), home[0].to(q.scalar_type()), home[1].to(q.scalar_type())};
}

}  // namespace trireme::context
