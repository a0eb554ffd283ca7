#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "comm/communicator.hpp"
#include "data/order/samples.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"

namespace trireme {

struct Validation {
  double loss = 0;  // loss sum of all ranks / valid targets of all ranks
  double num_targets = 0;
};

/// Mean loss over all of `sets`, each sequence once, split over the data ranks of `mesh`
/// (collective). The same for every number of ranks up to rounding. `stop_before(i, n)` is called
/// before batch i of n of every set, numbers that all ranks have in common; where it says true (on
/// all of them alike), the validation is given up: none.
std::optional<Validation> evaluate(
    Transformer& model, const Objective& objective, std::span<const SampleSet> sets,
    const Mesh& mesh, std::int64_t micro_batch,
    const std::function<bool(std::int64_t, std::int64_t)>& stop_before);

}  // namespace trireme
