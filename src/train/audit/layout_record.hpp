#pragma once
#include <string>

#include "core/files/json.hpp"
#include "train/audit/update_count.hpp"

namespace trireme {

/// What a run's layout took, after an update: the content of RUN/layout.json. `ranks`, `backend`,
/// `parallel` (every key, and `dp`), `micro_steps`, `schedule` (null without a pipeline); `per_rank`: `rank`,
/// `coords`, `stages`, and each beside its `..._formula` `in_flight_peak`, `bubble_share` (null on a GPU's
/// pipeline) and the fields of RankMemory; `collectives` of rank 0, `formula_bytes` beside the
/// `moved_bytes` that were counted (null where a library moved them); `schedule_list`, a line a rank,
/// of a schedule that was found. Collective over `control`; rank 0's is whole, the others' is null.
/// `mesh`: of the update.
Json layout_record(Communicator& control, const Mesh& mesh, const UpdateFacts& facts,
                   const UpdateCount& count);

/// Collectives of a rank, as counted, beside their formulas.
Json collectives_json(const std::vector<CollectiveRow>& counted,
                      const std::vector<CollectiveRow>& formulas);

}  // namespace trireme
