#pragma once
#include "core/files/json.hpp"
#include "train/audit/update_count.hpp"

namespace trireme::train {

/// Returns the content of RUN/layout.json after an update, on rank 0; null on other ranks.
/// Collective over `control`. `mesh`: mesh of the update.
///   ranks, backend, parallel   every key of [parallel], and `dp`
///   micro_steps, schedule      schedule is null without a pipeline
///   per_rank                   rank, coords, stages, and these values with their `..._formula`:
///                              in_flight_peak, bubble_share (null on a GPU pipeline), RankMemory
///   collectives                of rank 0: moved_bytes counted (null if a library moved them) and
///                              formula_bytes
///   schedule_list              one line per rank of a schedule that was found
/// The caller adds mfu_predicted (null if it is unknown).
Json layout_record(comm::Communicator& control, const parallel::Mesh& mesh,
                   const UpdateFacts& facts, const UpdateCount& count);

/// Returns the counted collectives of a rank together with their formulas.
Json collectives_json(const std::vector<CollectiveRow>& counted,
                      const std::vector<CollectiveRow>& formulas);

}  // namespace trireme::train
