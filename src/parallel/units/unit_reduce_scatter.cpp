#include "parallel/collectives.hpp"
#include "parallel/units/grad_reduction.hpp"

namespace trireme {

void UnitReduceScatter::launch(std::size_t unit) {
  UnitGrads& grads = registry_.grads();
  const bool experts = registry_.layout().units()[unit].experts;
  Communicator& group = mesh_.shard_group(experts);
  if (group.size() == 1) return;
  const at::Tensor part = grads.part(unit);
  const bool apart = grads.apart(unit);
  const at::Tensor whole = apart ? grads.take(unit) : grads.whole(unit);
  const at::Tensor sum = apart ? at::empty_like(part) : part;
  WorkPtr work = reduce_scatter(group, whole, sum, "grads");
  if (!apart) {
    in_flight_.add(std::move(work));
    return;
  }
  add_taken(std::move(work), static_cast<std::int64_t>(whole.nbytes()), [part, whole, sum] {
    const at::NoGradGuard no_grad;
    at::Tensor(part).add_(sum);
  });
}

void UnitReduceScatter::finish() {
  wait_for_taken();
  for (const std::size_t unit : registry_.layout().trained_units()) {
    const bool experts = registry_.layout().units()[unit].experts;
    Communicator& copies = mesh_.replica_group(experts);
    if (copies.size() == 1) continue;
    const at::Tensor part = registry_.grad_part(unit);
    if (part.numel() == 0) continue;
    in_flight_.add(all_reduce(copies, part, ReduceOp::sum, "grads of copies"));
  }
  in_flight_.finish();
}

}  // namespace trireme
