#include "parallel/collectives.hpp"
#include "parallel/units/grad_reduction.hpp"

namespace trireme {

void UnitReduceScatter::launch(std::size_t unit) {
  UnitGrads& grads = registry_.grads();
  const at::Tensor part = grads.part(unit);
  const at::Tensor whole = grads.sharded() ? grads.take(unit) : grads.whole(unit);
  const at::Tensor sum = grads.sharded() ? at::empty_like(part) : part;
  WorkPtr work = reduce_scatter(mesh_.group(Axis::shard), whole, sum, "grads");
  if (!grads.sharded()) {
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
  Communicator& copies = mesh_.group(Axis::replica);
  for (const std::size_t unit : registry_.layout().trained_units()) {
    if (copies.size() == 1) break;
    const at::Tensor part = registry_.grad_part(unit);
    if (part.numel() == 0) continue;
    in_flight_.add(all_reduce(copies, part, ReduceOp::sum, "grads of copies"));
  }
  in_flight_.finish();
}

}  // namespace trireme
