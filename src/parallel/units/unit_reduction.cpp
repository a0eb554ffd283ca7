#include <utility>

#include "parallel/collectives.hpp"
#include "parallel/units/grad_reduction.hpp"

namespace trireme::parallel {

void InFlight::begin() {
  items_.clear();  // work of an update that did not finish; each destructor waits
  none_left_ = true;
  times_ = {};
  timer_.restart();
}

void InFlight::add(comm::WorkPtr work, std::function<void()> then) {
  const double now = timer_.seconds();
  if (std::exchange(none_left_, false)) times_.first_launch_s = now;
  if (items_.empty()) busy_since_s_ = now;
  items_.push_back({std::move(then), std::move(work)});
}

void InFlight::retire_oldest() {
  Item item = std::move(items_.front());
  items_.pop_front();
  item.work.reset();
  item.then();
  if (items_.empty()) times_.comm_s += timer_.seconds() - busy_since_s_;
}

void InFlight::poll() {
  while (!items_.empty() && items_.front().work->poll()) retire_oldest();
}

void InFlight::wait_for_all_but(std::size_t count) {
  while (items_.size() > count) {
    items_.front().work->wait();
    retire_oldest();
  }
}

void InFlight::finish() {
  const double start = timer_.seconds();
  wait_for_all_but(0);
  times_.exposed_s = timer_.seconds() - start;
}

std::unique_ptr<GradReduction> make_grad_reduction(ParamRegistry& registry, const Mesh& mesh) {
  if (mesh.config().reproducible) return std::make_unique<UnitOrderedSum>(registry, mesh);
  if (registry.layout().has_parts()) return std::make_unique<UnitReduceScatter>(registry, mesh);
  return std::make_unique<BucketAllReduce>(
      registry, ReplicaGroups{mesh.grad_group(), mesh.replica_group(/*experts=*/true)},
      bucket_bytes(mesh.config(), mesh.size(Axis::data)), mesh.node_levels());
}

UnitReduction::UnitReduction(ParamRegistry& registry, const Mesh& mesh)
    : registry_(registry), mesh_(mesh), missing_(registry.layout().units().size()) {}

void UnitReduction::begin() {
  for (std::size_t unit = 0; unit < missing_.size(); ++unit)
    missing_[unit] = registry_.layout().units()[unit].params.size();
  waiting_bytes_ = 0;
  in_flight_.begin();
}

void UnitReduction::ready(ParamId id) {
  in_flight_.note_ready();
  const std::size_t unit = registry_.unit_of(id);
  if (--missing_[unit] == 0) {
    missing_[unit] = registry_.layout().units()[unit].params.size();  // reset for the next backward
    launch(unit);
  }
  in_flight_.poll();
}

void UnitReduction::add_taken(comm::WorkPtr work, std::int64_t bytes, std::function<void()> then) {
  in_flight_.add(std::move(work), std::move(then));
  in_flight_.wait_for_all_but(1);
  registry_.grads().returned(std::exchange(waiting_bytes_, bytes));
}

void UnitReduction::wait_for_taken() {
  in_flight_.wait_for_all_but(0);
  registry_.grads().returned(std::exchange(waiting_bytes_, 0));
}

void UnitReduceScatter::launch(std::size_t unit) {
  UnitGrads& grads = registry_.grads();
  const bool experts = registry_.layout().units()[unit].experts;
  comm::Communicator& group = mesh_.shard_group(experts);
  if (group.size() == 1) return;
  const at::Tensor part = grads.part(unit);
  const bool apart = grads.apart(unit);
  const at::Tensor whole = apart ? grads.take(unit) : grads.whole(unit);
  const at::Tensor sum = apart ? at::empty_like(part) : part;
  comm::WorkPtr work = reduce_scatter(group, whole, sum, "grads");
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
  for (const std::size_t unit : registry_.layout().trainable_units()) {
    const bool experts = registry_.layout().units()[unit].experts;
    comm::Communicator& copies = mesh_.replica_group(experts);
    if (copies.size() == 1) continue;
    const at::Tensor part = registry_.grad_part(unit);
    if (part.numel() == 0) continue;
    in_flight_.add(all_reduce(copies, part, comm::ReduceOp::sum, "grads of copies"));
  }
  in_flight_.finish();
}

void UnitOrderedSum::launch(std::size_t unit) {
  UnitGrads& grads = registry_.grads();
  const UnitLayout& layout = registry_.layout();
  const ShardGrid& grid = layout.grid(unit);
  const IndexRange share = layout.share_of_part(unit);
  const at::Tensor sum = grads.part(unit).narrow(0, share.begin, share.count());
  // In the unit, shares are ordered by shard, then by replica. Data ranks are ordered by replica,
  // then by shard. Therefore transpose.
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
  comm::Communicator& copies = mesh_.group(Axis::replica);
  const UnitLayout& layout = registry_.layout();
  for (const std::size_t unit : layout.trainable_units()) {
    if (copies.size() == 1) break;
    const IndexRange share = layout.share_of_part(unit);
    if (share.count() == 0) continue;
    const at::Tensor part = registry_.grad_part(unit);
    in_flight_.add(
        all_gather(copies, part.narrow(0, share.begin, share.count()), part, "grads of copies"));
  }
  in_flight_.finish();
}

}  // namespace trireme::parallel
