#include <algorithm>

#include "core/error.hpp"
#include "parallel/collectives.hpp"
#include "parallel/units/grad_reduction.hpp"

namespace trireme {
namespace {

/// Whole units of gradients that wait for their sums, beside the one that backward fills.
constexpr std::size_t kMostInFlight = 1;

}  // namespace

std::unique_ptr<GradReduction> make_grad_reduction(ParamRegistry& registry, const Mesh& mesh) {
  if (mesh.size(Axis::shard) > 1) return std::make_unique<UnitReduceScatter>(registry, mesh);
  return std::make_unique<BucketAllReduce>(registry, mesh.grad_group(),
                                           bucket_bytes(mesh.config(), mesh.size(Axis::data)),
                                           mesh.node_levels());
}

UnitReduceScatter::UnitReduceScatter(ParamRegistry& registry, const Mesh& mesh)
    : registry_(registry),
      shard_(mesh.group(Axis::shard)),
      replica_(mesh.group(Axis::replica)),
      missing_(registry.layout().units().size()) {}

void UnitReduceScatter::begin() {
  for (std::size_t u = 0; u < missing_.size(); ++u) {
    missing_[u] = registry_.layout().units()[u].params.size();
  }
  in_flight_.begin();
}

void UnitReduceScatter::ready(ParamId id) {
  in_flight_.note_ready();
  const std::size_t unit = registry_.unit_of(id);
  if (--missing_[unit] == 0) launch(unit);
  in_flight_.poll();
}

void UnitReduceScatter::launch(std::size_t unit) {
  UnitGrads& grads = registry_.grads();
  missing_[unit] = registry_.layout().units()[unit].params.size();  // for the next pass
  const at::Tensor part = grads.part(unit);
  const at::Tensor whole = grads.sharded() ? grads.take(unit) : grads.whole(unit);
  const at::Tensor sum = grads.sharded() ? at::empty_like(part) : part;
  WorkPtr work = reduce_scatter(shard_, whole, sum, "grads");
  if (!grads.sharded()) {
    in_flight_.add(std::move(work));
    return;
  }
  in_flight_.add(std::move(work), [&grads, part, whole, sum] {
    const at::NoGradGuard no_grad;
    at::Tensor(part).add_(sum);
    grads.returned(static_cast<std::int64_t>(whole.nbytes()));
  });
  in_flight_.wait_for_all_but(kMostInFlight);
}

void UnitReduceScatter::finish() {
  in_flight_.wait_for_all_but(0);
  for (std::size_t unit = 0; replica_.size() > 1 && unit < missing_.size(); ++unit) {
    const at::Tensor part = registry_.grad_part(unit);
    if (part.numel() == 0) continue;
    in_flight_.add(all_reduce(replica_, part, ReduceOp::sum, "grads of copies"));
  }
  in_flight_.finish();
}

}  // namespace trireme
