#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "device/device.hpp"
#include "train/config/config.hpp"
#include "train/cost/collectives_formula.hpp"
#include "train/verify/trial_model.hpp"

namespace trireme::comm {

class Activity;

}  // namespace trireme::comm

namespace trireme::train {

/// Measurements of a step on this machine. They are the same on all ranks.
struct StepFigures {
  double tokens_per_s = 0;    // sum over all ranks
  double step_time_s = 0;     // median over the steps, of the slowest rank
  double comm_s = 0;          // communication time per step, overlapped or not; mean over ranks
  double comm_exposed_s = 0;  // part of comm_s in which a rank only waited
  double mem_peak_bytes = 0;  // maximum over the ranks
  /// Memory before the model was built, and peak of tensor allocations since then, of the same
  /// rank.
  double mem_before_bytes = 0;
  double mem_counted_bytes = 0;
  std::vector<CollectiveRow> collectives;  // with audit: counted on this rank in one update
  std::vector<CollectiveRow> formulas;     // with audit: predicted by the formulas
  std::string differences;  // differences between counts and formulas on any rank; "": none
};

struct StepBench {
  RunConfig config;  // resolved and accepted by check_layout
  std::int64_t steps = 5;
  bool audit = false;
  at::Device device = at::kCPU;
};

TrialShape trial_shape(const StepBench& bench);

/// Returns this rank's micro-batches of update `step`, assigned to ranks like in the data loader.
std::vector<data::Batch> bench_batches(const StepBench& bench, const parallel::Mesh& mesh,
                                       std::int64_t step);

/// Returns the number of targets of an update. Collective over `control`.
std::int64_t count_targets(comm::Communicator& control, const parallel::Mesh& mesh,
                           const std::vector<data::Batch>& batches);

/// Returns the median of values, which is not empty.
double median(std::vector<double> values);

/// Trains the configured model from random weights on random documents for `bench.steps` updates
/// after two warm-up updates. `control`: communicator on the host. `world`: ranks that train, the
/// same or on GPUs. `activity`: this rank's waiting time. Collective.
StepFigures measure_step(comm::Communicator& control, comm::Communicator& world,
                         comm::Activity& activity, const StepBench& bench);

}  // namespace trireme::train
