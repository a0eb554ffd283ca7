#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "train/planner/fit.hpp"

namespace trireme::planner {

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
