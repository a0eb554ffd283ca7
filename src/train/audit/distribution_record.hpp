#pragma once
#include <string>

#include "comm/communicator.hpp"
#include "comm/session.hpp"
#include "core/files/json.hpp"
#include "parallel/mesh.hpp"
#include "parallel/param_registry.hpp"

namespace trireme::train {

/// Returns the proof that the ranks share the work and have the same parameters, for
/// RUN/distribution.json: for each rank its host, device, threads, mesh coordinates and the hash of
/// its weights; and `parameters`: the number of different shards, of copies, and `identical`. Copies
/// are the ranks with the same coordinates in tp, pp, etp and ep. With `sharded` (ZeRO-3), each rank
/// hashes its own part, and there are no copies to compare.
/// The record is complete on rank 0 and empty on other ranks. Collective.
Json distribution_record(comm::Communicator& world, parallel::ParamRegistry& registry,
                         const parallel::Mesh& mesh, const comm::LaunchInfo& launch, int threads,
                         bool sharded);

/// Returns a complete record in words: "dp 2 on n1, n2; parameters: 1 shard, 2 copies of each,
/// identical, hash 4f2a...".
std::string distribution_text(const Json& record);

}  // namespace trireme::train
