#pragma once
#include <cstdint>
#include <map>

#include "train/cost/rank_units.hpp"

namespace trireme::train {

/// The gradients that a rank sums over tp, because several ranks hold the parameter and each one has
/// a part of its gradient.
struct SharedElements {
  /// Number of units by the elements of these gradients in the unit.
  std::map<std::int64_t, std::int64_t> units;
};

/// Returns the shared gradients of a model without adapters.
SharedElements shared_elements(const UpdateFacts& facts, const RankUnits& units,
                               const parallel::RankCoords& coords);

}  // namespace trireme::train
