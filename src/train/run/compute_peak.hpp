#pragma once
#include "train/start/run_model.hpp"
#include "train/start/run_request.hpp"

namespace trireme::train {

/// The compute peak of all ranks together, in FLOP/s. MFU is measured against it.
struct ComputePeak {
  double flops = 1;
  std::string where{};  // devices, threads and ranks that have this peak
  std::string dtype{};
  bool is_new = false;         // true if this start measured it
  bool is_data_sheet = false;  // true if the values are those of data sheets
};

/// Returns the stored peak (RUN/peak.json) for this dtype on the same devices, threads and ranks.
/// If no peak is stored, all ranks measure it at the same time. GPUs with known data-sheet values
/// are not measured. If the file is unreadable, the peak is measured again. Collective; the caller
/// holds the run's lock.
ComputePeak find_compute_peak(const RunRequest& run, const RunModel& model);

/// Logs the peak. Stores a measured one in RUN/peak.json, so that later starts print the same MFU
/// for the same throughput. Does nothing on ranks other than 0.
void store_compute_peak(const RunRequest& run, const ComputePeak& peak);

}  // namespace trireme::train
