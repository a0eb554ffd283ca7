#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "train/planner/fit.hpp"

namespace trireme::planner {

/// What `trireme bench step --json` measured.
struct BenchRow {
  MeasuredStep step;
  double comm_exposed_s = 0;
};

/// The rows of a file that has one or several such objects, one after another or one a line; their
/// devices are of `kind`. Throws Error(usage) where a row is of a CPU and `kind` none, or the other way
/// round, Error(data) naming row and key for anything else.
std::vector<BenchRow> read_bench_rows(const std::filesystem::path& path, const DeviceKind& kind);

struct Calibration {
  TimeConstants constants;
  std::vector<double> errors;  // that are left, of each row
};

/// As many constants as rows can tell: of one row the efficiency of products and, if ranks waited
/// for one another, the network's factor; of three rows or more also the bytes beside products.
Calibration calibrate(const std::vector<BenchRow>& rows);

}  // namespace trireme::planner
