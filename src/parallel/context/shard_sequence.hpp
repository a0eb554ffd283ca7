#pragma once
#include "parallel/context/attention.hpp"
#include "parallel/mesh.hpp"
#include "parallel/microbatch.hpp"

namespace trireme::parallel {

/// The context-parallel group and form that a layer uses. Without a group, every row is whole.
struct ContextGroup {
  comm::Communicator* group = nullptr;
  ContextAlgorithm form = ContextAlgorithm::ring;

  [[nodiscard]] int size() const { return group == nullptr ? 1 : group->size(); }
};

/// Returns the cp axis of the mesh with the form of parallel.cp_form.
ContextGroup context_group(const Mesh& mesh);

/// Shards a micro-batch of whole rows along the sequence: returns this cp rank's T / cp tokens of
/// each row, selected by parallel.cp_balance, and the positions of all ranks. Microbatch::policy then
/// has the targets of this rank, in the order of its tokens.
Microbatch shard_sequence(Microbatch whole, const Mesh& mesh);

}  // namespace trireme::parallel
