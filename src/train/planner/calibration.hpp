#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "train/planner/step_time.hpp"

namespace trireme::planner {

/// An optimizer step with its measured time.
struct MeasuredStep {
  train::UpdateFacts facts;
  Cluster cluster;
  double step_s = 0;
};

/// A constant that a fit may change.
using Constant = double TimeConstants::*;

/// Returns the relative errors: predicted / measured - 1.
std::vector<double> errors_of(std::span<const MeasuredStep> steps, const TimeConstants& constants);

/// Returns the root mean square.
double rms(std::span<const double> errors);

/// Returns the constants that predict `steps` best (least squares of relative errors). Starts at
/// `start` and changes only the constants in `free`. The search along one constant at a time with
/// shrinking steps is deterministic.
TimeConstants fit(std::span<const MeasuredStep> steps, const TimeConstants& start,
                  std::span<const Constant> free);

/// One measurement of `trireme bench step --json`.
struct BenchRow {
  MeasuredStep step;
  double comm_exposed_s = 0;
};

/// Reads the rows of a file with one or more such JSON objects. Throws Error(usage) if a row was
/// measured on a CPU and `kind` is a GPU, or the reverse, and Error(data) naming row and key for
/// invalid content.
std::vector<BenchRow> read_bench_rows(const std::filesystem::path& path, const DeviceKind& kind);

struct Calibration {
  TimeConstants constants;
  std::vector<double> errors;  // remaining relative error of each row
};

/// Fits as many constants as the rows determine: the efficiency of matrix products; the network
/// factor if ranks waited for each other; with three or more rows also the bytes of elementwise
/// operations.
Calibration calibrate(const std::vector<BenchRow>& rows);

}  // namespace trireme::planner
