#pragma once
#include <vector>

#include "train/cost/collectives_formula.hpp"
#include "train/cost/rank_units.hpp"

namespace trireme {

/// Adds what a rank sends through its group of context parallelism in one update: keys and values of
/// attention, and where routers have a loss what they count of each sequence.
void add_context_rows(const UpdateFacts& facts, const RankCoords& coords, const RankUnits& units,
                      std::vector<CollectiveRow>& rows);

}  // namespace trireme
