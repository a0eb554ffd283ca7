#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "core/operation_record.hpp"
#include "device/device.hpp"
#include "train/config/config.hpp"
#include "train/cost/collectives_formula.hpp"
#include "train/verify/trial_model.hpp"

namespace trireme::comm {

class Activity;

}  // namespace trireme::comm

namespace trireme::train {

/// One kind of work of a step (kStepWork).
struct WorkTime {
  std::string_view name;
  double seconds = 0;
  double flops = 0;
};

/// Measurements of a step on this machine. They are the same on all ranks.
struct StepFigures {
  double tokens_per_s = 0;        // sum over all ranks, at step_time_s
  double clock_tokens_per_s = 0;  // all measured steps and the time between them, without the start
  double step_time_s = 0;         // median over the steps, of the slowest rank
  double comm_s = 0;              // communication time per step, overlapped or not; mean over ranks
  double comm_exposed_s = 0;      // part of comm_s in which a rank only waited
  double mem_peak_bytes = 0;      // maximum over the ranks
  /// Memory before the model was built, and peak of tensor allocations since then, of the same
  /// rank.
  double mem_before_bytes = 0;
  double mem_counted_bytes = 0;
  double own_flops = 0;        // one step of this rank; only this value may differ between ranks
  double flops_matmul = 0;     // matrix products of one step without attention; mean over ranks
  double flops_attention = 0;  // pairs of a query and a key that it sees; mean over ranks
  /// The work of the median step on its slowest rank; the times add up to step_time_s.
  std::vector<WorkTime> work;
  std::vector<CollectiveRow> collectives;  // with audit: counted on this rank in one update
  std::vector<CollectiveRow> formulas;     // with audit: predicted by the formulas
  std::string differences;  // differences between counts and formulas on any rank; "": none
};

/// The highest throughput that the processors allow.
struct StepCeiling {
  double peak_flops = 0;    // FLOP/s of one rank, mean over ranks (device::measured_peak_flops)
  double tokens_per_s = 0;  // sum over all ranks, if each rank does only its products, at its peak
  double share = 0;         // measured tokens_per_s / this tokens_per_s
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

/// Measures the peak of all ranks at the same time and compares `figures` with it. Collective.
StepCeiling measure_ceiling(comm::Communicator& control, const StepBench& bench,
                            const StepFigures& figures);

}  // namespace trireme::train
