#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "train/config/config.hpp"
#include "train/cost/collectives_formula.hpp"

namespace trireme {

class Activity;

/// What a step of a layout takes on this machine; the same on all ranks.
struct StepFigures {
  double tokens_per_s = 0;    // of all ranks
  double step_time_s = 0;     // median over the steps of the slowest rank's
  double comm_s = 0;          // of it, with bytes under way or waited for; mean over ranks
  double comm_exposed_s = 0;  // of it, in which a rank only waited
  double mem_peak_bytes = 0;  // of the rank with most
  /// Of it, what was there before the model; and the most that tensors took since, as they are
  /// counted where they are allocated. The same rank's.
  double mem_before_bytes = 0;
  double mem_counted_bytes = 0;
  std::vector<CollectiveRow> collectives;  // of this rank in one update, with audit
  std::vector<CollectiveRow> formulas;     // what they should be
  std::string differences;  // what a rank sent or held and formulas do not say; "": none
};

struct StepBench {
  RunConfig config;  // resolved: shape, precision, lengths, accumulation; check_layout has passed
  std::int64_t steps = 5;
  bool audit = false;
  at::Device device = at::kCPU;
};

/// Trains the configured model from random weights on random documents for `bench.steps` updates,
/// after two to warm up. Collective. `control`: ranks on the host; `world`: those that train, the
/// same or a GPU's; `activity`: this rank's, for the time that it waited.
StepFigures measure_step(Communicator& control, Communicator& world, Activity& activity,
                         const StepBench& bench);

}  // namespace trireme
