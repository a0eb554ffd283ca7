#include "parallel/context/shard_sequence.hpp"

#include "core/by_name.hpp"
#include "parallel/context/sequence_sharding.hpp"

namespace trireme::parallel {

ContextGroup context_group(const Mesh& mesh) {
  if (mesh.size(Axis::cp) == 1) return {};
  return {&mesh.group(Axis::cp), by_name<ContextAlgorithm>(kContextForms, mesh.config().cp_form)};
}

Microbatch shard_sequence(Microbatch whole, const Mesh& mesh) {
  const int ranks = mesh.size(Axis::cp);
  if (ranks == 1) return whole;
  const auto balance = by_name<ContextBalance>(kContextBalances, mesh.config().cp_balance);
  whole.positions_of_ranks =
      shard_positions(balance, {.bounds = whole.bounds}, whole.rows(), whole.length(), ranks);
  const ops::RowPositions& own =
      whole.positions_of_ranks[static_cast<std::size_t>(mesh.rank(Axis::cp))];
  for (at::Tensor* per_token :
       {&whole.tokens, &whole.targets, &whole.target_weights, &whole.positions, &whole.places,
        &whole.sequence_of, &whole.padding}) {
    if (per_token->defined()) *per_token = select_positions(*per_token, own);
  }
  return whole;
}

}  // namespace trireme::parallel
