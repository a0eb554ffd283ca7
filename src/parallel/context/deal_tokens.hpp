#pragma once
#include "parallel/context/attention.hpp"
#include "parallel/mesh.hpp"
#include "parallel/microbatch.hpp"

namespace trireme {

/// Context parallelism as a layer sees it; without a group every row is whole.
struct ContextGroup {
  Communicator* group = nullptr;
  ContextForm form = ContextForm::ring;

  [[nodiscard]] int size() const { return group == nullptr ? 1 : group->size(); }
};

/// The cp axis of the mesh with parallel.cp_form.
ContextGroup context_group(const Mesh& mesh);

/// Of a micro-batch of whole rows the tokens of this rank of cp, T / cp of each row, dealt by
/// parallel.cp_balance; every rank knows the places of all.
Microbatch deal_tokens(Microbatch whole, const Mesh& mesh);

}  // namespace trireme
