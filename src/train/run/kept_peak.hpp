#pragma once
#include "train/start/run_model.hpp"
#include "train/start/run_request.hpp"

namespace trireme {

/// The compute peak of all ranks together, in FLOP/s, which MFU is a share of.
struct ComputePeak {
  double flops = 1;
  std::string where{};  // devices, threads and ranks that it is of; "" if nothing is to be kept
  std::string dtype{};
  bool is_new = false;  // measured by this start
};

/// Returns the figure that RUN/peak.json holds for this dtype on the same devices, threads and ranks;
/// if there is none, all ranks measure at once (data-sheet values of GPUs are not measured).
/// Collective, with the run's lock. A file that cannot be read counts as absent.
ComputePeak find_peak(const RunRequest& run, const RunModel& model);

/// Writes a new figure into RUN/peak.json, so that later starts print equal MFU for equal
/// throughput, and logs the figure. On rank 0; nothing on others.
void keep_peak(const RunRequest& run, const ComputePeak& peak);

}  // namespace trireme
