#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "data/order/samples.hpp"
#include "train/step/step.hpp"

namespace trireme {

struct Validation {
  double loss = 0;            // loss sum of all ranks / its terms on all ranks
  double num_terms = 0;       // targets, or pairs
  std::vector<double> means;  // of Objective::evaluated(), over the same
};

/// Mean loss over all of `sets`, each sample once, split over the data ranks
/// (collective). The same for every number of ranks up to rounding. `stop_before(i, n)` is called
/// before batch i of n of every set, numbers that all ranks have in common; where it says true (on
/// all of them alike), the validation is given up: none.
std::optional<Validation> evaluate(
    Step& step, std::span<const SampleSet> sets, std::int64_t micro_batch,
    const std::function<bool(std::int64_t, std::int64_t)>& stop_before);

}  // namespace trireme
