#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "device/torch_bridge.hpp"
#include "ops/attention/memo.hpp"
#include "parallel/context/forms.hpp"

namespace trireme::parallel::context {
namespace {

/// A pending exchange: `out` goes to the next rank while `in` comes from the previous rank.
class RingTransfer {
 public:
  RingTransfer(at::Tensor out, comm::Communicator& group, std::string_view tag)
      : out_(std::move(out)), in_(at::empty_like(out_)) {
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    const comm::Message send{next, out_.data_ptr(), out_.nbytes()};
    const comm::Message receive{before, in_.data_ptr(), in_.nbytes()};
    work_ = group.exchange({.sends = {&send, 1},
                            .receives = {&receive, 1},
                            .stream = device::current_stream(out_.device()),
                            .tag = tag});
  }

  /// Makes progress: on MPI messages move only inside calls of the communicator.
  void poll() { work_->poll(); }

  /// Waits for both messages.
  at::Tensor arrived() {
    work_->wait();
    return in_;
  }

 private:
  at::Tensor out_;
  at::Tensor in_;
  comm::WorkPtr work_;  // destroyed first, because it may still read and write the tensors
};

/// Returns the setup for local queries and the chunk of `owner`.
ops::AttentionSetup chunk_setup(const ContextCall& call, int owner) {
  return call.attention(call.own_positions(), call.setup.positions[static_cast<std::size_t>(owner)],
                        /*wide=*/true);
}

bool is_seen(const ops::AttentionSetup& setup, const at::Tensor& q) {
  return !ops::sees_nothing(*ops::planned_attention(setup, q.size(0), q.size(2), q.size(2)));
}

/// Returns the owner of the chunk that is on this rank after `step` transfers.
int owner_at(int step, const comm::Communicator& group) {
  return (group.rank() - step + group.size()) % group.size();
}

/// Allocates the output of one chunk: [B, H, T / c, D] and [B, H, T / c] in fp32 (fp64 for fp64).
ops::AttentionOutput space_for(const at::Tensor& q) {
  const auto options = q.options().dtype(ops::accumulate_type(q));
  return {at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, options).transpose(1, 2),
          at::empty({q.size(0), q.size(1), q.size(2)}, options)};
}

/// Some key heads and the query heads that read them.
struct HeadSlice {
  ops::TokenRange keys;
  ops::TokenRange queries;

  [[nodiscard]] at::Tensor of_keys(const at::Tensor& x) const {
    return x.narrow(1, keys.first, keys.length);
  }

  [[nodiscard]] at::Tensor of_queries(const at::Tensor& x) const {
    return x.narrow(1, queries.first, queries.length);
  }
};

/// On a CPU, splits a chunk's work into up to four kernel calls, so that messages can make progress
/// between the calls. Each call has at least one key head per thread.
std::vector<HeadSlice> head_slices(const at::Tensor& q, const at::Tensor& k) {
  constexpr std::int64_t kMost = 4;
  const std::int64_t heads = k.size(1);
  const std::int64_t readers = q.size(1) / heads;
  const std::int64_t count =
      q.is_cpu() ? std::clamp<std::int64_t>(heads / at::get_num_threads(), 1, kMost) : 1;
  std::vector<HeadSlice> slices;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t first = i * heads / count;
    const std::int64_t length = (i + 1) * heads / count - first;
    slices.push_back({{first, length}, {first * readers, length * readers}});
  }
  return slices;
}

/// Computes attention over one chunk; calls `between` after each slice.
template <class Between>
ops::AttentionOutput chunk_forward(const at::Tensor& q, const at::Tensor& held,
                                   const ops::AttentionSetup& setup, ops::Path path,
                                   const Between& between) {
  ops::AttentionOutput part = space_for(q);
  for (const HeadSlice& slice : head_slices(q, held[0])) {
    const auto heads = ops::attention_forward(slice.of_queries(q), slice.of_keys(held[0]),
                                              slice.of_keys(held[1]), setup, path);
    slice.of_queries(part.out).copy_(heads.out);
    slice.of_queries(part.lse).copy_(heads.lse);
    between();
  }
  return part;
}

}  // namespace

ContextResult ring_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const ContextCall& call) {
  comm::Communicator& group = *call.group;
  at::Tensor held = at::stack({k, v}).contiguous();  // [2, B, Hk, T / c, D]
  ops::AttentionOutput sum;
  for (int step = 0; step < group.size(); ++step) {
    std::optional<RingTransfer> next;
    if (step + 1 < group.size()) next.emplace(held, group, "context keys");
    const auto setup = chunk_setup(call, owner_at(step, group));
    if (is_seen(setup, q)) {
      const auto part = chunk_forward(q, held, setup, call.path, [&] {
        if (next) next->poll();
      });
      if (step == 0) {  // every query sees its own key
        sum = part;
      } else {
        ops::merge_attention(sum, part);
      }
    }
    if (next) held = next->arrived();
  }
  const at::Tensor out = sum.out.to(q.scalar_type());
  return {out, {q, k, v, {out, sum.lse}}};
}

ops::AttentionGrads ring_backward(const at::Tensor& grad_out, const ContextSaved& saved,
                                  const ContextCall& call) {
  comm::Communicator& group = *call.group;
  const at::Tensor& q = saved.q;
  at::Tensor held = at::stack({saved.k, saved.v}).contiguous();  // [2, B, Hk, T / c, D]
  const auto type = ops::accumulate_type(q);
  at::Tensor grad_q = at::zeros(q.sizes(), q.options().dtype(type));
  at::Tensor home;  // gradients of this rank's chunk
  std::optional<RingTransfer> next;
  std::optional<RingTransfer> sums;  // gradients of the chunk that arrives here next
  for (int step = 0; step < group.size(); ++step) {
    if (step + 1 < group.size()) next.emplace(held, group, "context keys");
    const auto setup = chunk_setup(call, owner_at(step, group));
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

}  // namespace trireme::parallel::context
