#include "parallel/collectives.hpp"
#include "parallel/units/grad_reduction.hpp"

namespace trireme {

void UnitOrderedSum::launch(std::size_t unit) {
  UnitGrads& grads = registry_.grads();
  const UnitLayout& layout = registry_.layout();
  const ShareGrid& grid = layout.grid(unit);
  const IndexRange share = layout.share_of_part(unit);
  const at::Tensor sum = grads.part(unit).narrow(0, share.begin, share.count());
  // Shares are ordered by shard, then by copy; data ranks are numbered by copy, then by shard.
  const at::Tensor whole = grads.take(unit);
  const at::Tensor sent =
      whole.view({grid.shards, grid.replicas, share.count()}).transpose(0, 1).contiguous();
  const at::Tensor received = at::empty({mesh_.size(Axis::data), share.count()}, whole.options());
  add_taken(all_to_all(mesh_.group(Axis::data), sent, received, "grads in order"),
            static_cast<std::int64_t>(whole.nbytes()), [sum, sent, received] {
              const at::NoGradGuard no_grad;
              for (std::int64_t rank = 0; rank < received.size(0); ++rank)
                at::Tensor(sum).add_(received[rank]);
            });
}

void UnitOrderedSum::finish() {
  wait_for_taken();
  Communicator& copies = mesh_.group(Axis::replica);
  const UnitLayout& layout = registry_.layout();
  for (const std::size_t unit : layout.trained_units()) {
    if (copies.size() == 1) break;
    const IndexRange share = layout.share_of_part(unit);
    if (share.count() == 0) continue;
    const at::Tensor part = registry_.grad_part(unit);
    in_flight_.add(
        all_gather(copies, part.narrow(0, share.begin, share.count()), part, "grads of copies"));
  }
  in_flight_.finish();
}

}  // namespace trireme
