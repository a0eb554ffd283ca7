#include <utility>

#include "parallel/units/grad_reduction.hpp"

namespace trireme {

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

void UnitReduction::add_taken(WorkPtr work, std::int64_t bytes, std::function<void()> then) {
  in_flight_.add(std::move(work), std::move(then));
  in_flight_.wait_for_all_but(1);
  registry_.grads().returned(std::exchange(waiting_bytes_, bytes));
}

void UnitReduction::wait_for_taken() {
  in_flight_.wait_for_all_but(0);
  registry_.grads().returned(std::exchange(waiting_bytes_, 0));
}

}  // namespace trireme
